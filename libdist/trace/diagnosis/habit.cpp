#include "trace/diagnosis/habit.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace amldist::trace {
namespace {

/// What is the same each time, and what may change from time to time.
auto kind_of(const CallRecord& call) {
  const bool is_message = !recorder_format::is_collective(call.operation);
  return std::tuple(call.communicator, call.operation, is_message ? call.peer : -1, call.tag);
}
auto details_of(const CallRecord& call) { return std::tuple(kind_of(call), call.bytes, call.peer, call.type); }

/// The calls that came after the longest run of at least three that ended as the one before this call.
std::vector<const CallRecord*> calls_after_same_run(const std::vector<CallRecord>& calls, std::size_t at, auto key) {
  constexpr std::size_t most_calls = 512;
  constexpr std::size_t longest_run = 64;
  const std::size_t begin = at - std::min(at, most_calls);
  std::size_t longest = 3;
  std::vector<const CallRecord*> after;
  for (std::size_t index = at; index-- > begin;) {
    std::size_t run = 0;
    while (run < std::min(longest_run, index - begin) && key(calls[index - run - 1]) == key(calls[at - run - 1])) ++run;
    if (run < longest) continue;
    if (run > longest) after.clear();
    longest = run;
    after.push_back(&calls[index]);
  }
  return after;
}

/// Of one call. Sizes that change from time to time say nothing.
Habit habit_at(const std::vector<CallRecord>& calls, std::size_t at) {
  const CallRecord& call = calls[at];
  if (call.operation == calls::Operation::finalize) return Habit::unknown;
  const auto in_detail = calls_after_same_run(calls, at, details_of);
  const auto after = in_detail.empty() ? calls_after_same_run(calls, at, kind_of) : in_detail;
  const auto same = [&](auto key) {
    return std::ranges::any_of(after, [&](const CallRecord* then) { return key(*then) == key(call); });
  };
  if (after.empty()) return Habit::unknown;
  if (!same(kind_of)) return Habit::broken;
  return in_detail.empty() || same(details_of) ? Habit::kept : Habit::resized;
}

}  // namespace

Habit habit_of(const Recording& recording, const CallRecord& at) {
  if (recording.told_habit) return *recording.told_habit;
  constexpr std::size_t calls_before = 8;
  const auto found = std::ranges::lower_bound(recording.calls, at.ticket, {}, &CallRecord::ticket);
  if (found == recording.calls.end()) return Habit::unknown;
  const auto own = static_cast<std::size_t>(found - recording.calls.begin());
  for (std::size_t index = own - std::min(own, calls_before); index < own; ++index) {
    if (habit_at(recording.calls, index) == Habit::broken) return Habit::broken;
  }
  return habit_at(recording.calls, own);
}

std::size_t broken_habits(const Recording& recording) {
  if (recording.told_habit) return *recording.told_habit == Habit::broken ? 1 : 0;
  constexpr std::size_t most_calls = 512;
  const std::size_t end = recording.calls.size();
  std::size_t broken = 0;
  for (std::size_t index = end - std::min(end, most_calls); index < end; ++index)
    broken += habit_at(recording.calls, index) == Habit::broken ? 1 : 0;
  return broken;
}

namespace {
/// Ranks whose communicators have the same sizes play the same part.
std::vector<std::uint32_t> part_of(const Recording& recording) {
  std::vector<std::uint32_t> sizes;
  for (const CommunicatorRecord& each : recording.communicators) sizes.push_back(each.size);
  std::ranges::sort(sizes);
  return sizes;
}
}  // namespace

bool leaves_common_order(std::span<const Recording> recordings, const Recording& rank, const CallRecord& at) {
  constexpr std::uint64_t most_calls = 32;
  constexpr std::size_t least_ranks = 3;
  using Kind = std::tuple<calls::Operation, std::uint32_t, std::uint64_t, std::int32_t>;
  const auto is_near = [&](const CallRecord& call) {
    return call.ticket <= at.ticket && at.ticket - call.ticket < most_calls;
  };
  const auto kind = [](const Recording& recording, const CallRecord& call) {
    const auto* const communicator = recording.communicator(call.communicator);
    return Kind(call.operation, communicator != nullptr ? communicator->size : 0, call.bytes, call.peer);
  };
  std::map<std::uint64_t, std::map<Kind, std::size_t>> votes;  // by number of the call
  const auto part = part_of(rank);
  for (const Recording& each : recordings) {
    if (each.source != rank.source || part_of(each) != part) continue;
    const auto first =
        std::ranges::lower_bound(each.calls, at.ticket - std::min(at.ticket, most_calls - 1), {}, &CallRecord::ticket);
    for (auto call = first; call != each.calls.end() && is_near(*call); ++call)
      ++votes[call->ticket][kind(each, *call)];
  }
  bool has_followed = false;
  for (const CallRecord& call : rank.calls) {
    if (!is_near(call) || !recorder_format::is_collective(call.operation)) continue;
    std::size_t all = 0;
    std::pair<Kind, std::size_t> most{};
    for (const auto& vote : votes[call.ticket]) {
      all += vote.second;
      if (vote.second > most.second) most = vote;
    }
    if (all < least_ranks || most.second * 2 <= all) return false;  // there is no common order
    if (most.first != kind(rank, call)) return has_followed;
    has_followed = true;
  }
  return false;
}

}  // namespace amldist::trace
