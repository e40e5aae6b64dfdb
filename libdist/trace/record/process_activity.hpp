// What the process of a rank does while it makes no recorded call: it and its descendants, as /proc shows them to a
// process of the same user on the same host.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/os/process_tree.hpp"

namespace amldist::trace {

/// What a process waits for that is not another rank.
enum class Obstacle : std::uint8_t {
  none,
  file_system,  ///< a thread is in state D
  file_lock,    ///< flock(2), fcntl(2)
  output,       ///< nobody reads the pipe or terminal that it writes to
  input,        ///< it reads from a socket or terminal
  processor,    ///< it could run, and others do
};

/// Totals of a process and its descendants since they began, with those that have ended and were waited for.
struct ActivityTotals {
  std::int64_t at_ms = 0;  ///< the host's monotonic clock
  std::uint64_t cpu_ms = 0;
  std::uint64_t io_bytes = 0;  ///< by read(2), write(2) and their like
  std::uint32_t children = 0;  ///< descendants that live
  Obstacle obstacle = Obstacle::none;
  std::uint64_t starved_ms = 0;  ///< that its threads could have run and others did; counted when they get their turn
  std::uint32_t runnable = 0;    ///< threads that run or wait for a processor

  friend bool operator==(const ActivityTotals&, const ActivityTotals&) = default;
};

/// The totals of one process of this host. All but the time are zero if it does not exist.
[[nodiscard]] ActivityTotals totals_of(pid_t process, const ProcessTable& all);

/// What happened between two totals.
struct Activity {
  std::uint32_t processor_tenths = 0;  ///< in use on average: 10 is one processor
  std::uint64_t io_per_second = 0;     ///< bytes
  std::uint32_t children = 0;
  Obstacle obstacle = Obstacle::none;
  std::uint32_t starved_tenths = 0;  ///< threads that could run and did not, on average: 10 is one

  /// Whether it does something, or waits for a thing that is no rank. A process that only polls does not.
  [[nodiscard]] bool is_busy() const noexcept;

  friend bool operator==(const Activity&, const Activity&) = default;
};

[[nodiscard]] Activity activity_between(const ActivityTotals& earlier, const ActivityTotals& later) noexcept;

/// "it computes (16 children, 15.8 processors)"; empty if it is not busy.
[[nodiscard]] std::string describe(const Activity& activity);

}  // namespace amldist::trace
