// What a rank's own past, and that of the other ranks, say about a call: programs repeat their calls, and most ranks
// make the same calls in the same order. It decides where the waits alone leave open who is wrong. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Whether a rank made this call, and the 8 before it, after the same calls as before: of the last 512 calls, the
/// longest run counts that ended as the one before a call. Nothing is known of the last call of all, finalize. What a
/// node has told of the call (CallRecord::told_habit) counts instead.
[[nodiscard]] Habit habit_of(const Recording& recording, const CallRecord& at);

/// The same of the newest calls, by ticket, and how many of them the rank had not made after the same calls before:
/// what a node tells.
struct NewestHabits {
  std::map<std::uint64_t, Habit> habits;
  std::size_t broken = 0;
};
[[nodiscard]] NewestHabits newest_habits(const Recording& recording);

/// How many of the last 512 calls the rank had not made after the same calls before.
[[nodiscard]] std::size_t broken_habits(const Recording& recording);

/// The newest `most` calls of all members that a rank has made, back to the first one that is missing. One that it
/// makes between the same two calls again and again is its custom: its program does so, also where that differs from
/// what most ranks do.
[[nodiscard]] CallOrder order_of(const Recording& recording, std::size_t most);

/// Marks of calls are below it.
inline constexpr std::uint32_t mark_end = 1U << 17;

/// A rank's calls beside those that most ranks have made with the same numbers, of those that have communicators of the
/// same sizes.
enum class CommonOrder : std::uint8_t {
  unknown,  ///< most ranks have no order in common, or the rank always makes this differing call
  kept,     ///< up to this call the rank has made what most have
  left,     ///< this call, or one of the 32 before it, is the rank's first that differs
};
[[nodiscard]] CommonOrder common_order(std::span<const Recording> recordings, const Recording& rank,
                                       const CallRecord& at);

/// How many calls of all members a rank has made once each, and no other rank at all.
[[nodiscard]] std::size_t odd_calls(std::span<const Recording> recordings, const Recording& rank);

/// How often a rank has made all the calls of all members that it repeats, but for those that make groups and finalize.
struct Rounds {
  std::size_t whole = 0;
  bool is_amid_one = false;        ///< after these
  bool is_one_call_alike = false;  ///< a round may have several of them

  friend bool operator==(const Rounds&, const Rounds&) = default;
};
/// nullopt: not all of its calls are known, or it repeats none.
[[nodiscard]] std::optional<Rounds> rounds_of(const Recording& recording);

}  // namespace amldist::trace
