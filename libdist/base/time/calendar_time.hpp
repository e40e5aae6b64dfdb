// The time of day for records: processes on different nodes can compare it as far as their clocks agree.
#pragma once

#include <cstdint>

#include "base/time/tick_clock.hpp"

namespace amldist {

/// Nanoseconds since 1970, UTC. Jumps when the clock is set.
[[nodiscard]] inline std::int64_t calendar_ns() noexcept { return static_cast<std::int64_t>(TickClock::realtime_ns()); }

}  // namespace amldist
