#include "trace/diagnosis/hang_diagnosis.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text/text.hpp"

namespace amldist::trace {
namespace {

using text::concat;
using Why = MissingRank::Why;

bool is_of_two(const Stall& stall) { return !recorder_format::is_collective(stall.call.operation); }

/// Whether a straggler is the end of the search, whatever it waits for itself.
bool is_final(const MissingRank& straggler) { return straggler.why != Why::never_called; }

HangDiagnosis::Kind kind_of(const Stall& stall) {
  const auto any = [&](Why why) {
    return std::ranges::find(stall.missing, why, &MissingRank::why) != stall.missing.end();
  };
  if (any(Why::gone)) return HangDiagnosis::Kind::dead;
  if (any(Why::stopped)) return HangDiagnosis::Kind::stopped;
  if (any(Why::differs)) return HangDiagnosis::Kind::wrong_call;
  if (any(Why::never_called)) return HangDiagnosis::Kind::not_come;
  return any(Why::slow) ? HangDiagnosis::Kind::slow : HangDiagnosis::Kind::unrecorded;
}

/// The stalls of a step by who waits in them.
class Waits {
 public:
  explicit Waits(const std::vector<Stall>& stalls) : stalls_(stalls) {
    for (const Stall& stall : stalls) {
      for (const std::uint32_t rank : stall.waiting) of_rank_[rank].push_back(&stall);
      for (const MissingRank& each : stall.missing) awaited_.insert(each.rank);
    }
  }

  [[nodiscard]] bool waits(std::uint32_t rank) const { return of_rank_.contains(rank); }

  [[nodiscard]] std::vector<std::uint32_t> ranks() const {
    std::vector<std::uint32_t> all;
    for (const auto& [rank, stalls] : of_rank_) all.push_back(rank);
    return all;
  }

  /// The stall that most ranks wait in, of those that somebody keeps up who waits for nobody. Only these culprits are
  /// left in it. Who waits on a communicator that is not judged is none, unless nobody else is found: `last_resort`.
  [[nodiscard]] std::optional<Stall> root(bool last_resort = false) const {
    std::optional<Stall> best;
    for (const Stall& stall : stalls_) {
      if (is_idle_server(stall)) continue;
      Stall own = stall;
      std::erase_if(own.missing, [&](const MissingRank& each) {
        return (!is_final(each) && waits(each.rank)) || (each.unjudged_wait && !last_resort);
      });
      drop_unsure(own.missing);
      if (own.missing.empty()) continue;
      if (!best || is_better(own, *best)) best = std::move(own);
    }
    return best;
  }

  /// A call in which most ranks are, and to which only a few have not come because they are in another one.
  [[nodiscard]] const Stall* majority() const {
    const auto found = std::ranges::max_element(stalls_, {}, [](const Stall& stall) { return stall.waiting.size(); });
    if (found == stalls_.end() || is_of_two(*found) || found->waiting.size() <= found->missing.size()) return nullptr;
    const auto as_many = std::ranges::count_if(
        stalls_, [&](const Stall& stall) { return stall.waiting.size() == found->waiting.size(); });
    // Somebody of the majority must be waited for by the few, in a call of all: else the few wait among themselves.
    const bool few_wait_in_collective = std::ranges::all_of(found->missing, [&](const MissingRank& each) {
      const auto stalls = of_rank_.find(each.rank);
      return stalls != of_rank_.end() &&
             std::ranges::none_of(stalls->second, [](const Stall* one) { return is_of_two(*one); });
    });
    return as_many == 1 && few_wait_in_collective ? &*found : nullptr;
  }

  /// A circle of waits: from some rank along the first wait of each until a rank comes again.
  [[nodiscard]] std::vector<Stall> circle() const {
    for (const auto& [start, unused] : of_rank_) {
      std::vector<std::uint32_t> path;
      std::uint32_t rank = start;
      while (waits(rank) && std::ranges::find(path, rank) == path.end()) {
        path.push_back(rank);
        rank = next_of(rank);
      }
      const auto first = std::ranges::find(path, rank);
      if (first == path.end()) continue;
      std::vector<Stall> links;
      for (auto each = first; each != path.end(); ++each) {
        Stall link = *of_rank_.at(*each).front();
        link.waiting = {*each};
        links.push_back(std::move(link));
      }
      return links;
    }
    return {};
  }

 private:
  /// Where others have certainly not come, a rank whose slots are all in use may have.
  static void drop_unsure(std::vector<MissingRank>& missing) {
    const auto is_unsure = [](const MissingRank& each) { return each.why == Why::no_recorder && each.local_rank; };
    if (!std::ranges::all_of(missing, is_unsure)) std::erase_if(missing, is_unsure);
  }

  /// Whoever would receive from any rank, and whom nobody waits for, only has nothing to do.
  [[nodiscard]] bool is_idle_server(const Stall& stall) const {
    const bool is_from_any = is_of_two(stall) && stall.call.peer == recorder_format::any_peer;
    return is_from_any && std::ranges::none_of(stall.waiting, [&](auto rank) { return awaited_.contains(rank); });
  }

  [[nodiscard]] std::uint32_t next_of(std::uint32_t rank) const {
    return of_rank_.at(rank).front()->missing.front().rank;
  }

  /// What is known for certain comes before what is not recorded, then the wait of more ranks, then the older one.
  static bool is_better(const Stall& one, const Stall& other) {
    const auto known = [](const Stall& stall) { return kind_of(stall) != HangDiagnosis::Kind::unrecorded; };
    if (known(one) != known(other)) return known(one);
    if (one.waiting.size() != other.waiting.size()) return one.waiting.size() > other.waiting.size();
    return one.since_ns < other.since_ns;
  }

  const std::vector<Stall>& stalls_;
  std::map<std::uint32_t, std::vector<const Stall*>> of_rank_;
  std::set<std::uint32_t> awaited_;  ///< ranks that others wait for
};

std::string who(const MissingRank& straggler) {
  return concat({"rank ", std::to_string(straggler.rank),
                 straggler.local_rank ? concat({" (local ", std::to_string(*straggler.local_rank), ")"}) : "",
                 straggler.host.empty() ? "" : concat({" on ", straggler.host})});
}

std::string for_seconds(std::uint64_t seconds) {
  return seconds == 0 ? "" : concat({" for ", std::to_string(seconds), " s"});
}

std::string clause(const Stall& stall, const MissingRank& straggler, std::uint64_t seconds) {
  const std::string last = straggler.last ? describe_call(*straggler.last) : "";
  const bool inside = straggler.last && straggler.last->pending();
  const std::string doing = last.empty() ? "" : concat({inside ? " in " : " after ", last});
  if (straggler.unjudged_wait)
    return concat({who(straggler), " ", describe_unjudged_wait(*straggler.unjudged_wait), for_seconds(seconds)});
  switch (straggler.why) {
    case Why::never_called:
      return concat(
          {who(straggler), is_of_two(stall) ? " has not met it" : " has not called it", for_seconds(seconds)});
    case Why::stopped:
      return concat({who(straggler), " is stopped", doing, for_seconds(seconds)});
    case Why::gone:
      return concat({who(straggler), " is dead", doing});
    case Why::slow:
      return concat({who(straggler), " is still in it", for_seconds(seconds)});
    case Why::differs:
      return concat({who(straggler), " called ",
                     straggler.last ? describe_difference(*straggler.last, stall.call) : "something else"});
    case Why::no_recorder:
      break;
  }
  return concat({who(straggler), " has not called it, or is not traced,", for_seconds(seconds)});
}

std::string deadlock_sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds) {
  constexpr std::size_t most_named = 4;
  std::string words =
      concat({"deadlock of ", text::count(diagnosis.circle.size(), "rank"), for_seconds(seconds), ": "});
  for (std::size_t i = 0; i < std::min(diagnosis.circle.size(), most_named); ++i) {
    const Stall& link = diagnosis.circle[i];
    words += concat({i == 0 ? "" : ", ", "rank ", std::to_string(link.waiting.front()), " waits in ",
                     call_of_group(link), " for rank ", std::to_string(link.missing.front().rank)});
  }
  if (diagnosis.circle.size() > most_named) words += ", and so on";
  return words;
}

}  // namespace

std::optional<HangDiagnosis> diagnose_hang(std::span<const Recording> recordings) {
  const auto stalls = find_all_stalls(recordings);
  const Waits waits(stalls);
  if (stalls.empty() || waits.ranks().empty()) return std::nullopt;
  if (auto root = waits.root()) return HangDiagnosis{kind_of(*root), *root, {}, waits.ranks()};
  if (const Stall* const majority = waits.majority()) {
    return HangDiagnosis{HangDiagnosis::Kind::wrong_call, *majority, {}, waits.ranks()};
  }
  auto circle = waits.circle();
  if (circle.empty()) {
    auto root = waits.root(true);
    return root ? std::optional(HangDiagnosis{kind_of(*root), *root, {}, waits.ranks()}) : std::nullopt;
  }
  return HangDiagnosis{HangDiagnosis::Kind::deadlock, circle.front(), circle, waits.ranks()};
}

std::string_view to_string(HangDiagnosis::Kind kind) noexcept {
  constexpr std::array<std::string_view, 7> words = {"not-come", "dead",       "stopped", "wrong-call",
                                                     "slow",     "unrecorded", "deadlock"};
  return words.at(static_cast<std::size_t>(kind));
}

std::string call_of_group(const Stall& stall) {
  const bool of_all = stall.communicator_name.empty() || stall.communicator_name == "world";
  return concat({describe_call(stall.call), of_all ? "" : concat({" of group '", stall.communicator_name, "'"})});
}

std::string sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds) {
  if (diagnosis.kind == HangDiagnosis::Kind::deadlock) return deadlock_sentence(diagnosis, seconds);
  constexpr std::size_t most_named = 4;
  const auto& stragglers = diagnosis.stall.missing;
  std::string words = concat({call_of_group(diagnosis.stall), ": "});
  for (std::size_t i = 0; i < std::min(stragglers.size(), most_named); ++i) {
    words += concat({i == 0 ? "" : ", ", clause(diagnosis.stall, stragglers[i], seconds)});
  }
  if (stragglers.size() > most_named)
    words += concat({", and ", text::count(stragglers.size() - most_named, "more rank")});
  std::set<std::uint32_t> waiting(diagnosis.waits.begin(), diagnosis.waits.end());
  for (const MissingRank& each : stragglers) waiting.erase(each.rank);
  if (waiting.empty()) return words;
  return words + concat({"; ", text::count(waiting.size(), "rank"), waiting.size() == 1 ? " waits" : " wait"});
}

bool is_same(const HangDiagnosis& one, const HangDiagnosis& other) {
  constexpr std::int64_t clock_noise_ns = 1'000'000'000;
  const auto key = [](const HangDiagnosis& diagnosis) {
    std::set<std::uint32_t> culprits;
    for (const MissingRank& each : diagnosis.stall.missing) culprits.insert(each.rank);
    return std::tuple(diagnosis.kind, diagnosis.stall.communicator, diagnosis.stall.call.sequence,
                      diagnosis.stall.call.operation, culprits);
  };
  const std::int64_t apart = one.stall.since_ns - other.stall.since_ns;
  return key(one) == key(other) && apart < clock_noise_ns && apart > -clock_noise_ns;
}

}  // namespace amldist::trace
