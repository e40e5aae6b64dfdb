#include "trace/diagnosis/straggler.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/text/text.hpp"
#include "trace/diagnosis/call_words.hpp"

namespace amldist::trace {
namespace {

using recorder_format::State;
using text::concat;

/// Whom, as in WaitedFor: whether it is a group, and which.
using Whom = std::pair<bool, std::uint64_t>;
constexpr std::uint64_t unknown_rank = std::numeric_limits<std::uint64_t>::max();

struct Wait {
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::optional<Whom> whom;
  [[nodiscard]] std::int64_t length() const noexcept { return end_ns - begin_ns; }
};

/// The ended calls of a rank since a moment: those that it waited in, and those that it only asked after.
struct Calls {
  std::vector<Wait> waits;
  std::vector<Wait> polls;
};

std::uint64_t rank_of_peer(const Recording& recording, const CallRecord& call) {
  const auto* const communicator = recording.communicator(call.communicator);
  const auto peer = static_cast<std::size_t>(call.peer);
  if (communicator == nullptr || call.peer < 0 || peer >= communicator->world_ranks.size()) return unknown_rank;
  return communicator->world_ranks[peer];
}

std::optional<Whom> whom_of(const Recording& recording, const CallRecord& call) {
  if (recorder_format::is_collective(call.operation)) {
    const auto* const communicator = recording.communicator(call.communicator);
    return communicator != nullptr ? std::optional(Whom{true, communicator->id}) : std::nullopt;
  }
  const std::uint64_t rank = rank_of_peer(recording, call);
  return rank != unknown_rank ? std::optional(Whom{false, rank}) : std::nullopt;
}

/// Whether a rank waited in a message from the moment that it `started` on. libamldist runs asynchronous ones itself.
bool is_wait_for_peer(const Recording& recording, const CallRecord& call) noexcept {
  if (call.operation == calls::Operation::none || recorder_format::is_collective(call.operation)) return false;
  if (recording.source == "nccl" || call.started_ns == 0) return false;
  return recording.source != "amldist" || call.started_ns == call.enqueued_ns;
}

/// MPI_Test in a loop may be a wait; so may PyTorch's is_completed().
bool is_poll(const Recording& recording, const CallRecord& call) noexcept {
  return call.started_ns == 0 && (recording.source == "mpi" || recording.source == "torch");
}

Calls calls_since(const Recording& recording, std::int64_t since) {
  Calls calls;
  for (const CallRecord& call : recording.calls) {
    if (call.state != State::completed || call.ended_ns <= since) continue;
    const auto add = [&](std::vector<Wait>& to, std::int64_t begin) {
      begin = std::max(begin, since);
      if (begin <= call.ended_ns) to.push_back({begin, call.ended_ns, whom_of(recording, call)});
    };
    if (is_wait_for_all(recording, call)) add(calls.waits, call.enqueued_ns);
    else if (is_wait_for_peer(recording, call)) add(calls.waits, call.started_ns);
    else if (is_poll(recording, call)) add(calls.polls, call.enqueued_ns);
  }
  return calls;
}

/// With it go the calls that mostly lie within it: one MPI_Waitall ends several.
void drop_longest(std::vector<Wait>& waits) {
  const auto longest = std::ranges::max_element(waits, {}, &Wait::length);
  if (longest == waits.end()) return;
  const Wait whole = *longest;
  std::erase_if(waits, [&](const Wait& each) {
    const std::int64_t both = std::min(each.end_ns, whole.end_ns) - std::max(each.begin_ns, whole.begin_ns);
    return both >= 0 && both * 2 >= each.length();
  });
}

/// The time that they cover together, each moment once.
std::int64_t covered(std::vector<Wait> waits) {
  std::ranges::sort(waits, {}, &Wait::begin_ns);
  std::int64_t sum = 0;
  std::int64_t until = std::numeric_limits<std::int64_t>::min();
  for (const Wait& each : waits) {
    sum += std::max<std::int64_t>(0, each.end_ns - std::max(each.begin_ns, until));
    until = std::max(until, each.end_ns);
  }
  return sum;
}

std::vector<WaitedFor> by_whom(const std::vector<Wait>& waits, double length) {
  std::map<Whom, std::vector<Wait>> of;
  for (const Wait& each : waits) {
    if (each.whom) of[*each.whom].push_back(each);
  }
  std::vector<WaitedFor> awaited;
  awaited.reserve(of.size());
  for (const auto& [whom, own] : of) {
    const double part = std::clamp(static_cast<double>(covered(own)) / length, 0.0, 1.0);
    awaited.push_back({whom.first, whom.second, part});
  }
  std::ranges::stable_sort(awaited, std::ranges::greater(), &WaitedFor::part);
  if (awaited.size() > OwnWaits::most_awaited) awaited.resize(OwnWaits::most_awaited);
  return awaited;
}

/// Who waits for the last one, directly or by way of others.
class Chain {
 public:
  Chain(std::span<const OwnWaits> ranks, std::uint32_t last) : ranks_(ranks) {
    for (const OwnWaits& each : ranks) {
      if (each.rank == last) add(each);
    }
  }

  [[nodiscard]] bool reaches_all() {
    constexpr int most_rounds = 64;
    for (int round = 0; round < most_rounds && reached_.size() < ranks_.size(); ++round) {
      const std::size_t before = reached_.size();
      // Both ways: a chain in the order of the ranks, or against it, takes one round.
      for (const OwnWaits& each : ranks_) look_at(each);
      for (std::size_t i = ranks_.size(); i-- > 0;) look_at(ranks_[i]);
      if (reached_.size() == before) break;
    }
    return reached_.size() == ranks_.size();
  }

 private:
  void look_at(const OwnWaits& rank) {
    if (!reached_.contains(rank.rank) && waited(rank) * 2 > rank.part) add(rank);
  }

  /// For those who are in the chain. In a group, what one of them waits too is not a wait for it.
  [[nodiscard]] double waited(const OwnWaits& rank) const {
    double sum = 0;
    for (const WaitedFor& each : rank.awaited) {
      if (!each.is_group) sum += reached_.contains(each.id) ? each.part : 0;
      const auto least = each.is_group ? least_in_.find(each.id) : least_in_.end();
      if (least != least_in_.end()) sum += std::max(0.0, each.part - least->second);
    }
    return sum;
  }

  void add(const OwnWaits& rank) {
    reached_.insert(rank.rank);
    for (const WaitedFor& each : rank.awaited) {
      if (!each.is_group) continue;
      double& least = least_in_.try_emplace(each.id, each.part).first->second;
      least = std::min(least, each.part);
    }
  }

  std::span<const OwnWaits> ranks_;
  std::set<std::uint64_t> reached_;
  std::map<std::uint64_t, double> least_in_;  ///< by group: what one in the chain waits in it
};

}  // namespace

std::optional<OwnWaits> own_waits(const Recording& recording, std::int64_t now_ns) {
  constexpr std::int64_t minute_ns = 60'000'000'000;
  constexpr std::int64_t least_ns = 10'000'000'000;
  constexpr std::size_t left_out = 2;
  if (recording.calls.empty()) return std::nullopt;
  const std::int64_t since = std::max(now_ns - minute_ns, recording.calls.front().enqueued_ns);
  auto [waits, polls] = calls_since(recording, since);
  const std::size_t number = waits.size();
  if (number <= left_out) return std::nullopt;
  const std::int64_t last = std::ranges::max_element(waits, {}, &Wait::end_ns)->end_ns;
  if (last - since < least_ns) return std::nullopt;
  for (std::size_t i = 0; i < left_out; ++i) drop_longest(waits);
  const auto length = static_cast<double>(last - since);
  const auto part_of = [length](std::int64_t time) { return std::clamp(static_cast<double>(time) / length, 0.0, 1.0); };
  OwnWaits own{recording.rank, recording.local_rank, recording.host};
  own.calls = static_cast<std::uint64_t>(static_cast<double>(number) * static_cast<double>(minute_ns) / length);
  own.part = part_of(covered(waits));
  own.awaited = by_whom(waits, length);
  waits.insert(waits.end(), polls.begin(), polls.end());
  own.at_most = part_of(covered(std::move(waits)));
  return own;
}

std::optional<Straggler> straggler_of(std::span<const OwnWaits> ranks) {
  constexpr std::uint64_t least_calls = 5;
  constexpr double least_part = 0.1;
  constexpr double least_share = 2.0 / 3;
  if (ranks.size() < 2 || std::ranges::min(ranks, {}, &OwnWaits::calls).calls < least_calls) return std::nullopt;
  const auto last = std::ranges::min_element(ranks, {}, &OwnWaits::part);
  double least_of_others = 1;
  double waited = 0;
  for (const OwnWaits& each : ranks) {
    if (each.rank == last->rank) continue;
    least_of_others = std::min(least_of_others, each.part);
    waited += each.part;
  }
  const double mean = waited / static_cast<double>(ranks.size() - 1);
  const double beyond = least_of_others - last->at_most;
  if (beyond < least_part || beyond < least_share * mean) return std::nullopt;
  if (!Chain(ranks, last->rank).reaches_all()) return std::nullopt;
  return Straggler{*last, beyond, beyond / mean};
}

std::optional<Straggler> find_straggler(std::span<const Recording> recordings) {
  std::map<std::uint32_t, OwnWaits> by_rank;
  for (const Recording& each : recordings) {
    std::int64_t last = 0;
    for (const CallRecord& call : each.calls) last = std::max(last, call.ended_ns);
    if (by_rank.contains(each.rank)) continue;
    if (auto own = own_waits(each, last)) by_rank.emplace(each.rank, std::move(*own));
  }
  if (by_rank.empty() || by_rank.size() != recordings.front().size) return std::nullopt;
  std::vector<OwnWaits> ranks;
  ranks.reserve(by_rank.size());
  for (auto& [number, own] : by_rank) ranks.push_back(std::move(own));
  return straggler_of(ranks);
}

std::string sentence(const Straggler& straggler) {
  const OwnWaits& rank = straggler.rank;
  return concat({describe_rank(rank.rank, rank.local_rank, rank.host), ": the others wait for it ",
                 in_percent(straggler.others), " of their time, which is ", in_percent(straggler.share),
                 " of their waits"});
}

std::optional<NamedStraggler> name_straggler(std::span<const Recording> recordings, const StepWaits& waits) {
  if (const auto rank = straggler_in(waits)) return NamedStraggler{rank->rank, rank->host, sentence(waits, *rank)};
  if (const auto found = find_straggler(recordings))
    return NamedStraggler{found->rank.rank, found->rank.host, sentence(*found)};
  return std::nullopt;
}

}  // namespace amldist::trace
