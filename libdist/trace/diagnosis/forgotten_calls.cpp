#include "trace/diagnosis/forgotten_calls.hpp"

#include <algorithm>
#include <vector>

#include "trace/diagnosis/habit.hpp"

namespace amldist::trace {
namespace {

using Why = MissingRank::Why;

/// Has made the call of this number, and no longer knows it.
bool has_forgotten(const Recording& recording, const CommunicatorRecord& own, std::uint64_t sequence) {
  return own.entered >= sequence && std::ranges::none_of(recording.calls, [&](const CallRecord& call) {
           return call.communicator == own.slot && call.sequence == sequence &&
                  recorder_format::is_collective(call.operation);
         });
}

/// A rank that may have made another call.
struct Doubtful {
  MissingRank rank;
  CommonOrder order = CommonOrder::unknown;
};

CommonOrder order_of_calls(std::span<const Recording> recordings, const Recording& rank) {
  const auto newest = std::ranges::max_element(rank.calls, {}, &CallRecord::ticket);
  return newest != rank.calls.end() ? common_order(recordings, rank, *newest) : CommonOrder::unknown;
}

std::vector<Doubtful> who_has_forgotten(std::span<const Recording> recordings, const Stall& stall) {
  std::vector<Doubtful> found;
  for (const Recording& each : recordings) {
    const auto own = std::ranges::find(each.communicators, stall.communicator, &CommunicatorRecord::id);
    const bool knows_ends = each.knows_ends() && own != each.communicators.end();
    if (knows_ends && has_forgotten(each, *own, stall.call.sequence))
      found.push_back({{Why::differs, each.rank, &each}});
  }
  return found;
}

/// The only one of these that has left the order of calls which most ranks have in common, or else the only one that
/// has made a single call unlike all others; nullptr: there may be another one.
const MissingRank* stray_one(std::span<const Recording> recordings, const std::vector<Doubtful>& ranks) {
  std::vector<const MissingRank*> left;
  for (const Doubtful& each : ranks)
    if (each.order == CommonOrder::left) left.push_back(&each.rank);
  if (!left.empty()) return left.size() == 1 ? left.front() : nullptr;
  std::vector<const MissingRank*> odd;
  for (const Doubtful& each : ranks)
    if (odd_calls(recordings, *each.rank.recording) == 1) odd.push_back(&each.rank);
  return odd.size() == 1 ? odd.front() : nullptr;
}

}  // namespace

void judge_forgotten_calls(std::span<const Recording> recordings, Stall& stall) {
  constexpr std::size_t most_looks = 1U << 16;  // of each who has forgotten at all recordings
  const auto is_slow = [](const MissingRank& each) {
    return each.why == Why::slow && each.recording != nullptr && each.recording->knows_ends();
  };
  if (stall.is_message() || !std::ranges::all_of(stall.missing, is_slow)) return;
  auto doubtful = who_has_forgotten(recordings, stall);
  if (doubtful.size() > most_looks / std::max<std::size_t>(1, recordings.size())) return;
  for (Doubtful& each : doubtful) each.order = order_of_calls(recordings, *each.rank.recording);
  std::erase_if(doubtful, [](const Doubtful& each) { return each.order == CommonOrder::kept; });
  if (doubtful.empty()) return;
  for (const MissingRank& each : stall.missing) {
    stall.waiting.push_back(each.rank);
    doubtful.push_back({each, order_of_calls(recordings, *each.recording)});
  }
  std::ranges::sort(stall.waiting);
  std::ranges::sort(doubtful, {}, [](const Doubtful& each) { return each.rank.rank; });
  const MissingRank* const stray = stray_one(recordings, doubtful);
  stall.is_tie = stray == nullptr;
  stall.missing.clear();
  if (stray != nullptr) {
    std::erase(stall.waiting, stray->rank);
    stall.missing.push_back(*stray);
    return;
  }
  for (const Doubtful& each : doubtful) stall.missing.push_back(each.rank);
}

}  // namespace amldist::trace
