// The clock of all deadlines: monotonic, unaffected when the time of day is set.
#pragma once

#include <chrono>

namespace amldist {

using Clock = std::chrono::steady_clock;

}  // namespace amldist
