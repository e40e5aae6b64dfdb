// What a node tells srun about one of its ranks under hang=: the part of a flight recorder by which it is judged. Lines
// of text; both ends treat it as hostile.
//
//   rank 2 4 0 runs mpi node2 3                     rank, ranks of the step, local rank, process (runs, stopped, gone,
//                                                   ended: gone after a good end, exited: gone
//                                                   with status 0), source, host, broken habits
//   does 81234 41000 7340032 16 0 9120             milliseconds of the node's clock, of processors, bytes read and
//                                                   written, children, Obstacle, milliseconds of waiting for a
//                                                   processor if it has waited: of its process, where that is known
//   from train.c:42                                 where the call that the rank is in was made; only in a live view
//   wrong 4 broadcast #1 (...): rank 4 ...          whose call does not match this one's, which failed, and what
//                                                   libamldist said of it; "-" in place of several ranks, or where
//                                                   one of several is right; of a process that is gone
//   comm 9ae16a3b2f90404f 2 4 41 0 1 world          id, rank in it, members, calls entered, world ranks first and
//                                                   stride, name; for no such row a short list "0,1,3", or "-"
//   comm ffffffffffffffff 0 1 0 - 1 -               in place of communicators without a slot, or without room here
//   call 0 1 42 4096 7 0 -1 0 2 61200 107           comm (by its line), operation, sequence, bytes, type, reduction,
//                                                   peer, tag, state, milliseconds since it began, or ended if it has,
//                                                   which of the rank's calls it is, and Habit, if that is known
//   order 14 3kA0d2...                              the number of the newest of the rank's calls of all members, and
//                                                   three digits for each from there back (CallOrder)
//
// Ages instead of times, because the clocks of two nodes differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace/record/record_reader.hpp"

namespace amldist::step {

/// Longest text, in bytes.
inline constexpr std::size_t longest_rank_state = 1200;

/// The calls that have not ended, their communicators, and the other communicators starting with the last used, as many
/// as fit. `now_ns` since 1970.
[[nodiscard]] std::string to_rank_state(const trace::Recording& recording, std::int64_t now_ns);

/// nullopt for a text that to_rank_state() cannot have written on a node of a step with this many tasks. Memory is
/// bounded by that number, not by what the text claims.
[[nodiscard]] std::optional<trace::Recording> parse_rank_state(std::string_view text, std::uint32_t tasks,
                                                               std::int64_t now_ns);

/// The number of ranks that a state speaks of; nullopt if it says no number up to `most`.
[[nodiscard]] std::optional<std::uint32_t> told_size(std::string_view state, std::uint64_t most);

/// How long the longest wait of a rank is, in milliseconds; 0 if it waits in no call.
[[nodiscard]] std::int64_t longest_wait_ms(const trace::Recording& recording, std::int64_t now_ns);

}  // namespace amldist::step
