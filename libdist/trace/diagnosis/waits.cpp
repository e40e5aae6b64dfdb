#include "trace/diagnosis/waits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/text/text.hpp"
#include "trace/diagnosis/call_words.hpp"

namespace amldist::trace {
namespace {

using recorder_format::State;
using text::concat;

constexpr std::int64_t least_wait_ns = 1'000'000;  // shorter ones are the noise of a busy machine

/// Whether nobody leaves such a call before all have come.
bool holds_all(calls::Operation operation) noexcept {
  switch (operation) {
    case calls::Operation::barrier:
    case calls::Operation::allreduce:
    case calls::Operation::allgather:
    case calls::Operation::allgatherv:
    case calls::Operation::alltoall:
    case calls::Operation::alltoallv:
    case calls::Operation::reduce_scatter:
      return true;
    default:
      return operation == calls::Operation::reduce_scatterv || operation == recorder_format::other::alltoallw ||
             operation == recorder_format::other::reduce_scatterv;
  }
}

struct CallTime {
  const Recording* recording;
  std::int64_t begin_ns;
  std::int64_t end_ns;
  [[nodiscard]] std::int64_t length() const noexcept { return std::max<std::int64_t>(0, end_ns - begin_ns); }
};
struct GroupCall {
  std::uint32_t members = 0;
  std::vector<CallTime> spent;
};

/// By communicator and number.
std::map<std::pair<std::uint64_t, std::uint64_t>, GroupCall> ended_calls(std::span<const Recording> recordings) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, GroupCall> calls;
  for (const Recording& recording : recordings) {
    for (const CallRecord& call : recording.calls) {
      const auto* const communicator = recording.communicator(call.communicator);
      if (call.state != State::completed || communicator == nullptr || !is_wait_for_all(recording, call)) continue;
      GroupCall& group = calls[{communicator->id, call.sequence}];
      group.members = communicator->size;
      group.spent.push_back({&recording, call.enqueued_ns, call.ended_ns});
    }
  }
  return calls;
}

/// From the first to the last of a rank's calls.
struct CallSpan {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
};

}  // namespace

bool is_wait_for_all(const Recording& recording, const CallRecord& call) noexcept {
  if (call.sequence == 0 || !holds_all(call.operation) || recording.source == "nccl") return false;
  return recording.source != "mpi" || call.started_ns == call.enqueued_ns;
}

double StepWaits::share_of(const AwaitedRank& rank) const noexcept {
  return waited_ns > 0 ? static_cast<double>(rank.waited_ns) / static_cast<double>(waited_ns) : 0;
}

StepWaits find_waits(std::span<const Recording> recordings) {
  StepWaits waits;
  std::map<std::uint32_t, AwaitedRank> by_rank;
  std::map<std::uint32_t, CallSpan> reach;
  for (const auto& [key, call] : ended_calls(recordings)) {
    if (call.members < 2 || call.spent.size() != call.members) continue;
    ++waits.calls;
    const auto last = std::ranges::min_element(call.spent, {}, &CallTime::length);
    std::int64_t together = 0;
    std::int64_t longest = 0;
    for (const CallTime& each : call.spent) {
      CallSpan& own = reach[each.recording->rank];
      own = {std::min(own.first, each.begin_ns), std::max(own.last, each.end_ns)};
      together += each.length() - last->length();
      longest = std::max(longest, each.length() - last->length());
    }
    if (longest < least_wait_ns) continue;
    ++waits.awaited;
    waits.waited_ns += together;
    const Recording& recording = *last->recording;
    AwaitedRank& rank =
        by_rank.try_emplace(recording.rank, AwaitedRank{recording.rank, recording.local_rank, recording.host})
            .first->second;
    ++rank.calls;
    rank.waited_ns += together;
    rank.longest_ns = std::max(rank.longest_ns, together);
  }
  for (const auto& [rank, own] : reach) waits.looked_at_ns += own.last - own.first;
  waits.ranks.reserve(by_rank.size());
  for (auto& [number, rank] : by_rank) waits.ranks.push_back(std::move(rank));
  std::ranges::stable_sort(waits.ranks, std::ranges::greater(), &AwaitedRank::waited_ns);
  return waits;
}

std::optional<AwaitedRank> straggler_in(const StepWaits& waits) {
  constexpr std::uint64_t least_calls = 5;
  constexpr double least_share = 2.0 / 3;
  constexpr double least_cost = 0.05;
  if (waits.ranks.empty() || waits.looked_at_ns <= 0) return std::nullopt;
  const AwaitedRank& first = waits.ranks.front();
  const double cost = static_cast<double>(first.waited_ns) / static_cast<double>(waits.looked_at_ns);
  const bool again_and_again = first.calls >= least_calls && first.longest_ns * 2 <= first.waited_ns;
  return again_and_again && waits.share_of(first) >= least_share && cost >= least_cost ? std::optional(first)
                                                                                       : std::nullopt;
}

std::string in_percent(double part) { return concat({std::to_string(std::lround(part * 100)), " %"}); }

std::string sentence(const StepWaits& waits, const AwaitedRank& straggler) {
  const auto all = static_cast<double>(std::max<std::int64_t>(1, waits.looked_at_ns));
  const double cost = static_cast<double>(straggler.waited_ns) / all;
  return concat({describe_rank(straggler.rank, straggler.local_rank, straggler.host), ": the others waited for it in ",
                 std::to_string(straggler.calls), " of ", text::count(waits.awaited, "call"), ", which is ",
                 in_percent(waits.share_of(straggler)), " of all waits and ", in_percent(cost),
                 " of the time of all ranks"});
}

}  // namespace amldist::trace
