// Who was waited for in the calls that have ended: a straggler is alive, comes to every call, and comes last. Pure.
//
// Nobody leaves a call such as an all-reduce before all have come. So whoever spends the least time in it came last,
// and what the others spent in it beyond that they waited for him. Only durations are compared: the clocks of two nodes
// need not agree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// What the others waited for one rank.
struct AwaitedRank {
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::string host;
  std::uint64_t calls = 0;      ///< that it came last to, so that somebody waited for a millisecond or more
  std::int64_t waited_ns = 0;   ///< all others together
  std::int64_t longest_ns = 0;  ///< in one call
};

struct StepWaits {
  std::uint64_t calls = 0;         ///< that all members have ended and that are still in all their files
  std::uint64_t awaited = 0;       ///< of them, those in which somebody waited for a millisecond or more
  std::int64_t waited_ns = 0;      ///< in them, all ranks together
  std::int64_t looked_at_ns = 0;   ///< from the first of these calls to the last, of all ranks together
  std::vector<AwaitedRank> ranks;  ///< who was waited for, most first

  /// The part of all waits that was for this rank, from 0 to 1.
  [[nodiscard]] double share_of(const AwaitedRank& rank) const noexcept;
};
[[nodiscard]] StepWaits find_waits(std::span<const Recording> recordings);

/// The rank that all wait for again and again: it came last to at least five calls, no single one of which is
/// half of the waits for it; two thirds of all waits are for it; and they cost the step a twentieth of its time or
/// more.
[[nodiscard]] std::optional<AwaitedRank> straggler_in(const StepWaits& waits);

/// "rank 2 (local 0) on node2: the others waited for it in 38 of 40 calls, which is 97 % of all waits and 31 % of the
/// time of all ranks".
[[nodiscard]] std::string sentence(const StepWaits& waits, const AwaitedRank& straggler);

/// "61 %" of 0.61.
[[nodiscard]] std::string in_percent(double part);

/// Whether the time from its beginning to its end was all spent in it, and nobody leaves such a call before all members
/// have come. MPI's own non-blocking calls end in the record when the program waits for them; NCCL's host does not know
/// when they end.
[[nodiscard]] bool is_wait_for_all(const Recording& recording, const CallRecord& call) noexcept;

}  // namespace amldist::trace
