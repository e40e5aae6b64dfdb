// The time of day, which recorders write down: processes of different nodes can compare it as far as their clocks
// agree.
#pragma once

#include <ctime>

#include <cstdint>

namespace amldist {

/// Nanoseconds since 1970, UTC. Jumps when somebody sets the clock.
[[nodiscard]] inline std::int64_t calendar_ns() noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace amldist
