// Why a call did not end, from what the ranks report. The core finds who is to blame (trace/diagnosis), as for hang=
// and `aml-dist trace`; here it gets the ranks' answers as recordings, and what only they know decides where it finds
// nothing.
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

/// Whom sentences name.
struct RankPlace {
  std::uint32_t rank = 0;  ///< of the world
  std::uint32_t local_rank = 0;
  std::string host;
};

/// One rank of the communicator, as far as is known.
struct RankState {
  Liveness standing = Liveness::silent;
  Activity activity;           ///< for `here`, as all that follows
  std::vector<PastCall> past;  ///< its last collectives, oldest first
  PairCounts pairs;
  std::string trouble;  ///< CommWatch::trouble()
  RankPlace place;
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

/// The diagnosis. Its message names the operation, its number and every rank that is to blame:
///   allreduce #17 (1048576 float32, 4 MiB): rank 3 (local 1) on node2 does not answer: it is stopped, or its node is
///   gone; 3 ranks wait
/// Class: timeout if the ranks may still come, peer if they cannot (dead, left, other call). `group`: the
/// communicator's name unless all ranks of the world are in it.
[[nodiscard]] Diagnosis diagnose(std::span<const RankState> ranks, const DiagnosisTrigger& trigger,
                                 const std::string& group = {});

}  // namespace amldist::world
