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

CommonOrder order_of_calls(std::span<const Recording> recordings, const Recording& rank) {
  const auto newest = std::ranges::max_element(rank.calls, {}, &CallRecord::ticket);
  return newest != rank.calls.end() ? common_order(recordings, rank, *newest) : CommonOrder::unknown;
}

std::vector<MissingRank> who_has_forgotten(std::span<const Recording> recordings, const Stall& stall) {
  std::vector<MissingRank> found;
  for (const Recording& each : recordings) {
    const auto own = std::ranges::find(each.communicators, stall.communicator, &CommunicatorRecord::id);
    const bool knows_ends = each.knows_ends() && own != each.communicators.end();
    if (knows_ends && has_forgotten(each, *own, stall.call.sequence)) found.push_back({Why::differs, each.rank, &each});
  }
  return found;
}

/// The only one of these that has left the order of calls which most ranks have in common, or else the only one that
/// has made a single call unlike all others; nullptr: there may be another one.
const MissingRank* stray_one(std::span<const Recording> recordings, const std::vector<MissingRank>& ranks) {
  const auto has_left = [&](const MissingRank& each) {
    return order_of_calls(recordings, *each.recording) == CommonOrder::left;
  };
  const auto is_odd = [&](const MissingRank& each) { return odd_calls(recordings, *each.recording) == 1; };
  const auto only = [&](auto holds) {
    const auto found = std::ranges::find_if(ranks, holds);
    return std::ranges::count_if(ranks, holds) == 1 ? &*found : nullptr;
  };
  const MissingRank* const left = only(has_left);
  return left != nullptr || std::ranges::any_of(ranks, has_left) ? left : only(is_odd);
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
  const auto has_kept = [&](const MissingRank& each) {
    return order_of_calls(recordings, *each.recording) == CommonOrder::kept;
  };
  std::erase_if(doubtful, has_kept);
  if (doubtful.empty()) return;
  for (const MissingRank& each : stall.missing) stall.waiting.push_back(each.rank);
  std::ranges::sort(stall.waiting);
  doubtful.insert(doubtful.end(), stall.missing.begin(), stall.missing.end());
  std::ranges::sort(doubtful, {}, &MissingRank::rank);
  const MissingRank* const stray = stray_one(recordings, doubtful);
  stall.is_tie = stray == nullptr;
  if (stray == nullptr) {
    stall.missing = std::move(doubtful);
    return;
  }
  std::erase(stall.waiting, stray->rank);
  stall.missing = {*stray};
}

}  // namespace amldist::trace
