// Why a step stands still, from the recordings of all its ranks. Pure.
//
// A stall names who has not come to one call. That rank may itself wait, in another call, for a third one: the stalls
// are a graph of who waits for whom. The first call of a group on which its members differ is the fault. Else it is a
// rank that is dead, stopped, or waits in no call. Else all wait in circles. A rank that lies on every circle may have
// left a call out, or made one too many. Of several, the one is wrong that breaks with its own past, or with the order
// that most ranks keep. Where nothing tells them apart the circle is shown, and nobody is blamed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/diagnosis/stalls.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Valid as long as the recordings.
struct HangDiagnosis {
  enum class Kind : std::uint8_t {
    not_come,    ///< ranks that run have not called what others wait in
    dead,        ///< a process is gone
    stopped,     ///< a process is stopped by a signal or a debugger
    wrong_call,  ///< ranks are in the call with other arguments, or in another one
    slow,        ///< ranks are still in a call that others have left
    unrecorded,  ///< ranks without a recorder are waited for: nothing is known about them
    deadlock,    ///< ranks wait for each other in a circle
  };
  Kind kind = Kind::not_come;
  Stall stall;                       ///< the call; its missing ranks are to blame. In a deadlock: the first wait of it
  std::vector<Stall> circle;         ///< of a deadlock: each rank's wait, each for the next one's rank
  std::vector<std::uint32_t> waits;  ///< all ranks of the step that wait in some call, ascending

  /// Whether the missing ranks are to blame. Else nothing tells who is.
  [[nodiscard]] bool is_decided() const { return kind != Kind::deadlock && !stall.is_tie; }
};

/// nullopt: nobody waits for anybody, or the rank that is waited for is on its way. `of`: only what keeps this rank.
[[nodiscard]] std::optional<HangDiagnosis> diagnose_hang(std::span<const Recording> recordings,
                                                         std::optional<std::uint32_t> of = {});

/// "not-come", "dead", "stopped", "wrong-call", "slow", "unrecorded", "deadlock".
[[nodiscard]] std::string_view to_string(HangDiagnosis::Kind kind) noexcept;

/// That of its stall, or "deadlock of 4 ranks for 5 s: rank 0 waits in ... for rank 1, ...".
[[nodiscard]] std::string sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds);

/// Whether two diagnoses, a while apart, are about the same standstill, which began at the same time within a second.
[[nodiscard]] bool is_same(const HangDiagnosis& one, const HangDiagnosis& other);

}  // namespace amldist::trace
