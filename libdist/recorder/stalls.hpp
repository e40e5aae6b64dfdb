// Who keeps whom waiting: the answer to "which rank hangs, and on what", from the recorders of a step. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recorder/record_reader.hpp"

namespace amldist::collective {

/// A rank that others wait for.
struct Straggler {
  enum class Why {
    never_called,  ///< the call that the others are in: it does something else
    stopped,       ///< by a signal or a debugger
    gone,          ///< its process is dead, before or in the call
    slow,          ///< it is still in the call that others have left
    differs,       ///< it made another call, or one of another size
    no_recorder,   ///< nothing is known of it here: it never came so far, or its file is elsewhere
  };
  Why why = Why::never_called;
  std::uint32_t rank = 0;          ///< in the step; where there is no recorder, in the communicator
  std::string host;                ///< empty: not known
  std::optional<CallRecord> last;  ///< its newest call on this communicator that the file still holds
};

/// One call that cannot end.
struct Stall {
  std::uint64_t communicator = 0;
  std::string communicator_name;  ///< empty for the first, which has all ranks
  std::uint32_t members = 0;
  CallRecord call;                     ///< as the first that waits recorded it
  std::int64_t since_ns = 0;           ///< when the first began to wait
  std::vector<std::uint32_t> waiting;  ///< ranks of the step
  std::vector<Straggler> stragglers;   ///< by rank; not empty
};

/// One stall for each communicator at most: its oldest call that has not ended. A call that all members are in, alive
/// and alike, is work and no stall. Where no collective call is stalled, a pending send or receive counts.
[[nodiscard]] std::vector<Stall> find_stalls(std::span<const Recording> recordings);

/// "allreduce #42 (1048576 float32, 4 MiB): rank 2 on node3 has not called it (its last was allreduce #41 (4 MiB of
/// float32)); ranks 0-1,3 wait".
[[nodiscard]] std::string sentence(const Stall& stall);

/// "rank 2 on node3 has not called it (its last was allreduce #41 (1048576 float32, 4 MiB))".
[[nodiscard]] std::string sentence(const Straggler& straggler);

/// "allreduce #42 (1048576 float32, 4 MiB)", "recv #3 (25 float32, 100 bytes) from rank 1": as live errors say it.
[[nodiscard]] std::string describe_call(const CallRecord& call);

/// "0-2,5" of ascending numbers.
[[nodiscard]] std::string compress_ranks(std::span<const std::uint32_t> ranks);

}  // namespace amldist::collective
