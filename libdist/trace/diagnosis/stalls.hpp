// Finds the ranks that others wait for, from the recorders of a step. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// A rank that the other ranks wait for.
struct MissingRank {
  enum class Why {
    never_called,  ///< it has not made the call that the others are in
    stopped,       ///< stopped by a signal or a debugger
    gone,          ///< its process died before or during the call
    slow,          ///< it is still in the call that the other ranks have left
    differs,       ///< it made another call, or one of another size
    no_recorder,   ///< unknown here: it never started recording, or its file is elsewhere
  };
  Why why = Why::never_called;
  std::uint32_t rank = 0;          ///< rank in the step; without a recorder, rank in the communicator
  std::string host;                ///< empty: unknown
  std::optional<CallRecord> last;  ///< its newest call on this communicator that is still in the file
  std::optional<std::uint32_t> local_rank = std::nullopt;
  /// What it waits in meanwhile, on a communicator without a slot: somebody else is to blame for that.
  std::optional<CallRecord> unjudged_wait = std::nullopt;
};

/// One call that cannot end.
struct Stall {
  std::uint64_t communicator = 0;
  std::string communicator_name;  ///< empty for the first, which has all ranks
  std::uint32_t members = 0;
  CallRecord call;  ///< as the first waiting rank recorded it
  /// When the first rank began to wait, or its stragglers made their last calls if that was later.
  std::int64_t since_ns = 0;
  std::vector<std::uint32_t> waiting;  ///< ranks of the step
  std::vector<MissingRank> missing;    ///< by rank; not empty
  bool is_only_posted = false;         ///< nobody waits: the program computes, or polls
  bool may_have_ended = false;         ///< all have made the call, and its end is not recorded
};

/// The name of a recorded operation, also of those that libamldist does not have; "unknown" for any other number.
[[nodiscard]] std::string_view name_of(calls::Operation operation) noexcept;

/// At most one stall per communicator: its oldest call that has not ended. If all members are in the call, alive, and
/// agree on it, it is in progress and no stall. If no collective call is stalled, pending sends and receives are
/// examined.
[[nodiscard]] std::vector<Stall> find_stalls(std::span<const Recording> recordings);

/// The calls that ranks wait in: of all, and every send or receive whose peer has not come to it. A receive from any
/// rank counts as one from those that wait for nobody. Not every one is the cause of a hang: see hang_diagnosis.hpp.
[[nodiscard]] std::vector<Stall> find_all_stalls(std::span<const Recording> recordings);

/// "allreduce #42 (1048576 float32, 4 MiB): rank 2 on node3 has not called it (its last was allreduce #41 (4 MiB of
/// float32)); ranks 0-1,3 wait".
[[nodiscard]] std::string sentence(const Stall& stall);

/// "rank 2 on node3 has not called it (its last was allreduce #41 (1048576 float32, 4 MiB))". `call`: the one that
/// the others are in; nullptr: not known.
[[nodiscard]] std::string sentence(const MissingRank& straggler, const CallRecord* call = nullptr);

/// "waits in recv (4 bytes) from rank 1 on a communicator that is not judged".
[[nodiscard]] std::string describe_unjudged_wait(const CallRecord& call);

/// "allreduce #42 (1048576 float32, 4 MiB)", "recv #3 (25 float32, 100 bytes) from rank 1": as live errors say it.
[[nodiscard]] std::string describe_call(const CallRecord& call);

/// What a rank called that differs from the others' call: "alltoall #3 (1 KiB) instead", and of calls that differ in
/// their root "broadcast #9 (4 KiB) with root 1 instead of root 0". Roots are ranks of the communicator.
[[nodiscard]] std::string describe_difference(const CallRecord& call, const CallRecord& others);

/// "0-2,5" of ascending numbers.
[[nodiscard]] std::string compress_ranks(std::span<const std::uint32_t> ranks);

}  // namespace amldist::trace
