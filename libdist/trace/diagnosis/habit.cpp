#include "trace/diagnosis/habit.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace amldist::trace {
namespace {

/// A call counts as broken, too, shortly after one that is.
constexpr std::size_t calls_before = 8;

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
  if (recording.told_breaks) return at.told_habit;
  const auto found = std::ranges::lower_bound(recording.calls, at.ticket, {}, &CallRecord::ticket);
  if (found == recording.calls.end()) return Habit::unknown;
  const auto own = static_cast<std::size_t>(found - recording.calls.begin());
  for (std::size_t index = own - std::min(own, calls_before); index < own; ++index) {
    if (habit_at(recording.calls, index) == Habit::broken) return Habit::broken;
  }
  return habit_at(recording.calls, own);
}

NewestHabits newest_habits(const Recording& recording) {
  constexpr std::size_t most_calls = 40;  // each costs a look at 512 calls before it
  NewestHabits newest;
  const auto& calls = recording.calls;
  std::size_t last_broken = calls.size();
  for (std::size_t index = calls.size() - std::min(calls.size(), most_calls); index < calls.size(); ++index) {
    const Habit own = habit_at(calls, index);
    if (own == Habit::broken) {
      ++newest.broken;
      last_broken = index;
    }
    const bool is_shortly_after = last_broken <= index && index - last_broken <= calls_before;
    newest.habits.emplace(calls[index].ticket, is_shortly_after ? Habit::broken : own);
  }
  return newest;
}

std::size_t broken_habits(const Recording& recording) {
  if (recording.told_breaks) return *recording.told_breaks;
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

/// A call of all members and its number among all such calls of the rank. Messages do not count: not all ranks have
/// them.
struct NumberedCall {
  std::uint64_t number;
  const CallRecord* call;
};

/// Those with numbers from `first` to `last`, newest first. They are counted from the newest back as far as none is
/// missing: a ring has forgotten the oldest, and a node tells only the newest of each communicator.
std::vector<NumberedCall> collective_calls(const Recording& recording, std::uint64_t first, std::uint64_t last) {
  struct Left {
    std::uint64_t made = 0;
    std::size_t known = 0;
  };
  std::map<std::uint32_t, Left> left;  // by slot
  std::uint64_t number = 0;
  for (const CommunicatorRecord& each : recording.communicators) {
    left[each.slot].made = each.entered;
    number += each.entered;
  }
  const auto slot_of = [&](const CallRecord& call) {
    const bool counts = recorder_format::is_collective(call.operation) && call.sequence != 0;
    return counts ? left.find(call.communicator) : left.end();
  };
  for (const CallRecord& call : recording.calls) {
    if (const auto slot = slot_of(call); slot != left.end()) ++slot->second.known;
  }
  std::vector<NumberedCall> found;
  for (auto call = recording.calls.rbegin(); call != recording.calls.rend() && number >= first; ++call) {
    const auto slot = slot_of(*call);
    if (slot == left.end()) continue;
    if (call->sequence != slot->second.made) break;
    if (number <= last) found.push_back({number, &*call});
    --number;
    --slot->second.made;
    if (--slot->second.known == 0 && slot->second.made != 0) break;
  }
  return found;
}

/// The last ones until a call, of all known ones.
std::span<const NumberedCall> calls_until(std::span<const NumberedCall> all, const CallRecord& at) {
  constexpr std::size_t most_calls = 32;
  const auto first =
      std::ranges::find_if(all, [&](const NumberedCall& each) { return each.call->ticket <= at.ticket; });
  const auto until = all.subspan(static_cast<std::size_t>(first - all.begin()));
  return until.first(std::min(until.size(), most_calls));
}

/// Those that a rank makes between the same two calls more than once. `all`: newest first, of which the newest 512
/// count.
std::set<std::uint64_t> customs_in(std::span<const NumberedCall> all) {
  constexpr std::size_t most_calls = 512;
  const auto window = [&](std::size_t at) {
    return std::tuple(details_of(*all[at - 1].call), details_of(*all[at].call), details_of(*all[at + 1].call));
  };
  std::map<decltype(window(0)), std::vector<std::uint64_t>> by_window;
  for (std::size_t at = 1; at + 1 < std::min(all.size(), most_calls); ++at)
    by_window[window(at)].push_back(all[at].call->ticket);
  std::set<std::uint64_t> customs;
  for (const auto& [calls, tickets] : by_window) {
    if (tickets.size() > 1) customs.insert(tickets.begin(), tickets.end());
  }
  return customs;
}
}  // namespace

std::set<std::uint64_t> customs_of(const Recording& recording) {
  return customs_in(collective_calls(recording, 1, ~std::uint64_t{0}));
}

CommonOrder common_order(std::span<const Recording> recordings, const Recording& rank, const CallRecord& at) {
  constexpr std::size_t least_ranks = 3;
  using Kind = std::tuple<calls::Operation, std::uint32_t, std::uint64_t, std::int32_t>;
  const auto kind = [](const Recording& recording, const CallRecord& call) {
    const auto* const communicator = recording.communicator(call.communicator);
    return Kind(call.operation, communicator != nullptr ? communicator->size : 0, call.bytes, call.peer);
  };
  const auto all_own = collective_calls(rank, 1, ~std::uint64_t{0});
  const auto own = calls_until(all_own, at);
  if (own.empty()) return CommonOrder::unknown;
  std::map<std::uint64_t, std::map<Kind, std::size_t>> votes;  // by number of the call
  const auto part = part_of(rank);
  for (const Recording& each : recordings) {
    if (each.source != rank.source || part_of(each) != part) continue;
    for (const auto& [number, call] : collective_calls(each, own.back().number, own.front().number)) {
      if (call->operation != calls::Operation::finalize)
        ++votes[number][kind(each, *call)];  // each ends when it is done
    }
  }
  bool has_followed = false;
  for (std::size_t index = own.size(); index-- > 0;) {  // the oldest first
    const NumberedCall& one = own[index];
    std::size_t all = 0;
    std::pair<Kind, std::size_t> most{};
    for (const auto& vote : votes[one.number]) {
      all += vote.second;
      if (vote.second > most.second) most = vote;
    }
    if (all < least_ranks || most.second * 2 <= all) return CommonOrder::unknown;  // no call is common
    if (most.first != kind(rank, *one.call)) {
      const bool is_custom =
          rank.told_breaks ? one.call->is_told_custom : customs_in(all_own).contains(one.call->ticket);
      return has_followed && !is_custom ? CommonOrder::left : CommonOrder::unknown;
    }
    has_followed = true;
  }
  return CommonOrder::kept;
}

}  // namespace amldist::trace
