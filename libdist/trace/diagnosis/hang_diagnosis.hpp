// Why a step stands still, from the recordings of all its ranks. Pure.
//
// A stall names who has not come to one call. That rank may itself wait, in another call, for a third one. The
// diagnosis follows these waits to their end: to a rank that does not wait, is dead or stopped, or called something
// else; or back to where they began, which is a deadlock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/diagnosis/stalls.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {

struct HangDiagnosis {
  enum class Kind {
    not_come,    ///< ranks that run have not called what others wait in
    dead,        ///< a process is gone
    stopped,     ///< a process is stopped by a signal or a debugger
    wrong_call,  ///< ranks are in the call with other arguments, or in another one
    slow,        ///< ranks are still in a call that others have left
    unrecorded,  ///< ranks without a recorder are waited for: nothing is known about them
    deadlock,    ///< ranks wait for each other in a circle
  };
  Kind kind = Kind::not_come;
  Stall stall;                       ///< the call; its stragglers are the culprits. In a deadlock: the first wait of it
  std::vector<Stall> circle;         ///< of a deadlock: each rank's wait, each for the next one's rank
  std::vector<std::uint32_t> waits;  ///< all ranks of the step that wait in some call, ascending
};

/// nullopt: nobody waits for anybody, or whoever is waited for is on his way.
[[nodiscard]] std::optional<HangDiagnosis> diagnose_hang(std::span<const Recording> recordings);

/// "not-come", "dead", "stopped", "wrong-call", "slow", "unrecorded", "deadlock".
[[nodiscard]] std::string_view to_string(HangDiagnosis::Kind kind) noexcept;

/// "allreduce #41 of group 'dp'": the call that the ranks wait in.
[[nodiscard]] std::string call_of_group(const Stall& stall);

/// "allreduce #41 of group 'dp': rank 2 (local 0) on node2 has not called it for 60 s; 7 ranks wait". The duration is
/// left out where it is 0.
[[nodiscard]] std::string sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds);

/// Whether two diagnoses, a while apart, are about the same standstill, which began at the same time within a second.
[[nodiscard]] bool is_same(const HangDiagnosis& one, const HangDiagnosis& other);

}  // namespace amldist::trace
