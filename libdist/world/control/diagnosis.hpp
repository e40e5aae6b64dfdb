// Which rank is missing: the diagnosis on a call that did not end, from what the ranks report.
//
// Pure: no clock, no I/O. The control thread of the lowest surviving rank collects the reports and calls this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "world/control/comm_watch.hpp"

namespace amldist::world {

/// How a rank answered when it was asked.
enum class Liveness : std::uint8_t {
  here,     ///< it answered
  silent,   ///< it did not: stopped, or its node is gone
  dead,     ///< its process has ended
  left,     ///< it has finalized
  unaware,  ///< it answered, but is not in this communicator yet, or any more
};

/// One rank of the communicator, as far as is known.
struct RankState {
  std::string name;  ///< "rank 3 (node2)"
  Liveness standing = Liveness::silent;
  Activity activity;           ///< for `here`
  std::string detail;          ///< why it is dead, where known
  std::vector<PastCall> past;  ///< for `here`: its last collectives
  PairCounts pairs;            ///< for `here`
  std::string trouble;         ///< for `here`: CommWatch::trouble()
};

/// The event that started the diagnosis.
struct DiagnosisTrigger {
  std::uint32_t reporter = 0;               ///< rank of the communicator
  int waits_for = calls::Watchdog::anyone;  ///< whom it waited for
  bool differs = false;                     ///< it saw that rank make another call
  std::string detail;                       ///< a clause of the back end, or empty
};

/// The lowest sequence number at which the ranks that answered made different collectives; nullopt: none is known.
[[nodiscard]] std::optional<std::uint64_t> parting_of(std::span<const RankState> ranks);

/// What a diagnosis comes to.
struct Diagnosis {
  Errc code = Errc::timeout;
  std::string message;
  ErrorSubject subject;
};

/// The diagnosis. Its message names every missing rank, the operation and its number:
///   rank 3 (node2) is missing in allreduce #17 (1048576 float32, 4 MiB): it does not answer (stopped, or its node is
///   gone)
/// Class: timeout if the ranks may still come, peer if they cannot (dead, left, other call).
[[nodiscard]] Diagnosis diagnose(std::span<const RankState> ranks, const DiagnosisTrigger& trigger);

}  // namespace amldist::world
