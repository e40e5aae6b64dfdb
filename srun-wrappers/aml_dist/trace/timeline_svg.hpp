// What each rank did and when, as a picture: one lane per rank, calls as bars, missing ranks in red.
#pragma once

#include <string>

#include "aml_dist/trace/trace_step.hpp"

namespace amldist::tools {

/// The newest `last` calls of each rank. Time runs linearly while the step worked; a stall at the end, which would
/// compress everything before it, gets a quarter of the width after a break in the axis. At most 64 lanes: ranks that
/// others wait for first.
[[nodiscard]] std::string draw_timeline(const TracedStep& step, std::size_t last);

}  // namespace amldist::tools
