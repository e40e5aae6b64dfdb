#include "trace/diagnosis/habit.hpp"

#include <algorithm>
#include <map>
#include <set>
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

using Repeated = std::vector<const CallRecord*>;

/// Those that can be a habit, oldest first. Programs make their groups before they repeat anything, and what follows is
/// always new to them.
Repeated repeated_calls(const Recording& recording) {
  Repeated calls;
  calls.reserve(recording.calls.size());
  for (const CallRecord& call : recording.calls) {
    if (call.operation != recorder_format::other::create) calls.push_back(&call);
  }
  return calls;
}

/// The calls that came after the longest run of at least three that ended as the one before this call.
Repeated calls_after_same_run(const Repeated& calls, std::size_t at, auto key) {
  constexpr std::size_t most_calls = 512;
  constexpr std::size_t longest_run = 64;
  const std::size_t begin = at - std::min(at, most_calls);
  std::size_t longest = 3;
  Repeated after;
  for (std::size_t index = at; index-- > begin;) {
    std::size_t run = 0;
    while (run < std::min(longest_run, index - begin) && key(*calls[index - run - 1]) == key(*calls[at - run - 1]))
      ++run;
    if (run < longest) continue;
    if (run > longest) after.clear();
    longest = run;
    after.push_back(calls[index]);
  }
  return after;
}

/// Of one call. Sizes that change from time to time say nothing.
Habit habit_at(const Repeated& calls, std::size_t at) {
  const CallRecord& call = *calls[at];
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
  const Repeated calls = repeated_calls(recording);
  const auto found = std::ranges::lower_bound(calls, at.ticket, {}, &CallRecord::ticket);
  if (found == calls.end() || (*found)->ticket != at.ticket) return Habit::unknown;
  const auto own = static_cast<std::size_t>(found - calls.begin());
  for (std::size_t index = own - std::min(own, calls_before); index < own; ++index) {
    if (habit_at(calls, index) == Habit::broken) return Habit::broken;
  }
  return habit_at(calls, own);
}

NewestHabits newest_habits(const Recording& recording) {
  constexpr std::size_t most_calls = 40;  // each costs a look at 512 calls before it
  NewestHabits newest;
  const Repeated calls = repeated_calls(recording);
  std::size_t last_broken = calls.size();
  for (std::size_t index = calls.size() - std::min(calls.size(), most_calls); index < calls.size(); ++index) {
    const Habit own = habit_at(calls, index);
    if (own == Habit::broken) {
      ++newest.broken;
      last_broken = index;
    }
    const bool is_shortly_after = last_broken <= index && index - last_broken <= calls_before;
    newest.habits.emplace(calls[index]->ticket, is_shortly_after ? Habit::broken : own);
  }
  return newest;
}

std::size_t broken_habits(const Recording& recording) {
  if (recording.told_breaks) return *recording.told_breaks;
  constexpr std::size_t most_calls = 512;
  const Repeated calls = repeated_calls(recording);
  const std::size_t end = calls.size();
  std::size_t broken = 0;
  for (std::size_t index = end - std::min(end, most_calls); index < end; ++index)
    broken += habit_at(calls, index) == Habit::broken ? 1 : 0;
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

constexpr std::uint32_t mark_of_finalize = 0;  // each ends when it is done

/// The mark of a call on a communicator with `size` ranks.
std::uint32_t mark_of(const CallRecord& call, std::uint64_t size) {
  if (call.operation == calls::Operation::finalize) return mark_of_finalize;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, word by word
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(call.operation), size, call.bytes, static_cast<std::uint64_t>(call.peer)})
    hash = (hash ^ (word + (word >> 23))) * 0x100000001b3;
  return 1 + static_cast<std::uint32_t>((hash ^ hash >> 29) % (mark_end - 1));
}
std::uint32_t mark_of(const Recording& recording, const CallRecord& call) {
  const auto* const communicator = recording.communicator(call.communicator);
  return mark_of(call, communicator != nullptr ? communicator->size : 0);
}

struct NumberedMark {
  std::uint64_t number;
  std::uint32_t mark;
};

/// Those with numbers from `first` to `last`, newest first.
std::vector<NumberedMark> marks_in(const Recording& recording, std::uint64_t first, std::uint64_t last) {
  std::vector<NumberedMark> found;
  if (!recording.told_order) {
    for (const auto& [number, call] : collective_calls(recording, first, last))
      found.push_back({number, mark_of(recording, *call)});
    return found;
  }
  std::uint64_t number = recording.told_order->newest;
  for (const CallOrder::One& one : recording.told_order->calls) {
    if (number < first) break;
    if (number <= last) found.push_back({number, one.mark});
    --number;
  }
  return found;
}

using Ranks = std::vector<const Recording*>;

/// Which ranks have made a call of this number, and the one that most of them have made.
struct Votes {
  std::map<std::uint32_t, Ranks> by_mark;

  [[nodiscard]] std::size_t all() const {
    std::size_t sum = 0;
    for (const auto& [mark, ranks] : by_mark) sum += ranks.size();
    return sum;
  }
  [[nodiscard]] std::optional<std::uint32_t> common() const {
    const auto most = std::ranges::max_element(by_mark, {}, [](const auto& vote) { return vote.second.size(); });
    return most != by_mark.end() && most->second.size() * 2 > all() ? std::optional(most->first) : std::nullopt;
  }
};

/// Groups are made before anything else, by ranks of all parts together.
bool makes_group(const Recording& rank, std::uint32_t mark) {
  CallRecord call;
  call.operation = recorder_format::other::create;
  return std::ranges::any_of(rank.communicators,
                             [&](const CommunicatorRecord& each) { return mark_of(call, each.size) == mark; });
}

/// Whether a rank has made other calls than those that make groups and its last of all, also where it tells of few.
bool has_worked(const Recording& rank) {
  const auto is_work = [](const CallRecord& call) {
    return call.operation != recorder_format::other::create && call.operation != calls::Operation::finalize;
  };
  std::uint64_t of_all = 0;
  for (const CommunicatorRecord& each : rank.communicators) of_all += each.entered;
  return std::ranges::any_of(rank.calls, is_work) || (!rank.calls.empty() && rank.calls.back().ticket > of_all);
}

/// Whether these others are no measure for a rank: it makes this call of its again and again, and none of them does, or
/// it has made nothing in common with them before (`has_begun`). If it has come to its last call of all without that,
/// it may have had only messages to send.
bool plays_another_part(const Recording& rank, std::uint32_t mark, const Ranks& others, bool has_begun) {
  constexpr std::size_t most_asked = 64;
  if (mark == mark_of_finalize) return !has_begun && has_worked(rank);
  const auto times = [mark](const Recording* each) {
    return std::ranges::count(marks_in(*each, 1, ~std::uint64_t{0}), mark, &NumberedMark::mark);
  };
  const auto end = others.begin() + static_cast<std::ptrdiff_t>(std::min(others.size(), most_asked));
  const auto makes_it_not = [&](const Recording* each) { return times(each) == 0; };
  return times(&rank) > 1 && (!has_begun || std::all_of(others.begin(), end, makes_it_not));
}

bool is_custom(const Recording& rank, const std::vector<NumberedCall>& calls, std::uint64_t number) {
  if (rank.told_order) {
    const std::uint64_t behind = rank.told_order->newest - number;
    return behind < rank.told_order->calls.size() && rank.told_order->calls[behind].is_custom;
  }
  const auto own = std::ranges::find(calls, number, &NumberedCall::number);
  return own != calls.end() && customs_in(calls).contains(own->call->ticket);
}
}  // namespace

CallOrder order_of(const Recording& recording, std::size_t most) {
  const auto calls = collective_calls(recording, 1, ~std::uint64_t{0});
  const auto customs = customs_in(calls);
  CallOrder order;
  for (const CommunicatorRecord& each : recording.communicators) order.newest += each.entered;
  for (const auto& [number, call] : calls) {
    if (order.calls.size() == most) break;
    order.calls.push_back({mark_of(recording, *call), customs.contains(call->ticket)});
  }
  return order;
}

CommonOrder common_order(std::span<const Recording> recordings, const Recording& rank, const CallRecord& at) {
  constexpr std::size_t least_ranks = 3;
  constexpr std::uint64_t most_calls = 32;
  constexpr std::size_t least_followed = 6;  // where the first ones are not known of most ranks
  const auto calls = collective_calls(rank, 1, ~std::uint64_t{0});
  const auto last =
      std::ranges::find_if(calls, [&](const NumberedCall& each) { return each.call->ticket <= at.ticket; });
  const bool is_told_whole = !rank.told_order || (!calls.empty() && calls.front().number == rank.told_order->newest);
  if (last == calls.end() || !is_told_whole) return CommonOrder::unknown;
  const auto own = marks_in(rank, last->number - std::min(last->number, most_calls) + 1, last->number);
  if (own.empty() || own.front().number != last->number) return CommonOrder::unknown;
  std::map<std::uint64_t, Votes> votes;  // by number of the call
  const auto part = part_of(rank);
  for (const Recording& each : recordings) {
    if (each.source != rank.source || part_of(each) != part) continue;
    for (const auto& [number, mark] : marks_in(each, own.back().number, own.front().number)) {
      if (mark != mark_of_finalize) votes[number].by_mark[mark].push_back(&each);
    }
  }
  std::size_t followed = 0;
  bool has_begun = false;  // but for those that make groups
  bool is_first_known = true;
  for (std::size_t index = own.size(); index-- > 0;) {  // the oldest first
    const auto& [number, mark] = own[index];
    const Votes& made = votes[number];
    if (made.all() < least_ranks && followed == 0) {
      is_first_known = false;
      continue;
    }
    const auto common = made.all() < least_ranks ? std::nullopt : made.common();
    if (!common) return CommonOrder::unknown;  // no call is common
    if (*common != mark) {
      const bool has_followed = followed >= (is_first_known ? 1 : least_followed);
      const bool is_own =
          is_custom(rank, calls, number) || plays_another_part(rank, mark, made.by_mark.at(*common), has_begun);
      return has_followed && !is_own ? CommonOrder::left : CommonOrder::unknown;
    }
    ++followed;
    has_begun = has_begun || !makes_group(rank, mark);
  }
  return followed != 0 ? CommonOrder::kept : CommonOrder::unknown;
}

std::size_t odd_calls(std::span<const Recording> recordings, const Recording& rank) {
  std::map<std::uint32_t, std::size_t> times;
  for (const auto& [number, mark] : marks_in(rank, 1, ~std::uint64_t{0})) ++times[mark];
  std::erase_if(times, [](const auto& mark) { return mark.second != 1; });
  for (const Recording& each : recordings) {
    if (&each == &rank || each.source != rank.source) continue;
    for (const auto& [number, mark] : marks_in(each, 1, ~std::uint64_t{0})) times.erase(mark);
  }
  return times.size();
}

std::optional<Rounds> rounds_of(const Recording& recording) {
  constexpr std::size_t most_calls = 4096;
  auto known = marks_in(recording, 1, ~std::uint64_t{0});
  if (known.empty() || known.back().number != 1 || known.size() > most_calls) return std::nullopt;
  std::reverse(known.begin(), known.end());  // the oldest first
  std::vector<std::uint32_t> marks;
  for (const auto& [number, mark] : known) {
    if (mark != mark_of_finalize && !makes_group(recording, mark)) marks.push_back(mark);
  }
  for (std::size_t length = 1; length * 2 <= marks.size(); ++length) {
    if (std::equal(marks.begin() + static_cast<std::ptrdiff_t>(length), marks.end(), marks.begin()))
      return Rounds{marks.size() / length, marks.size() % length != 0, length == 1};
  }
  return std::nullopt;
}

}  // namespace amldist::trace
