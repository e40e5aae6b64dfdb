// The clock of all deadlines: monotonic, and untouched by whoever sets the time of day.
#pragma once

#include <chrono>

namespace amldist {

using Clock = std::chrono::steady_clock;

}  // namespace amldist
