// What a rank's recorder shows of each operation: how often, how much, how long and how fast, in the last minute. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// The calls of one operation. Rates are per second of the time that was looked at.
struct Traffic {
  calls::Operation operation = calls::Operation::none;
  double calls = 0;  ///< that ended
  double bytes = 0;  ///< their sizes, as record_format.hpp defines them
  /// The part of the time that a thread was in such a call, also in one that has not ended; above 1 for several
  /// threads. nullopt: the source does not know when its calls end, or nobody waits in them.
  std::optional<double> part = {};
  /// Bytes per second of the ended calls' own time, by the factors of nccl-tests, so that it can be compared with the
  /// speed of a link. What a rank waited for others counts, and calls that are recorded with less than a microsecond do
  /// not, since that may leave out the copying. nullopt: not known, or there is only one rank.
  std::optional<double> bus = {};
};

/// By operation. At most the last minute before `now_ns` (of a process that has gone: before its last sign of life), or
/// as far back as the file reaches.
[[nodiscard]] std::vector<Traffic> find_traffic(const Recording& recording, std::int64_t now_ns);

}  // namespace amldist::trace
