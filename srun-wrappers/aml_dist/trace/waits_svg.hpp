// Who waits for whom, as a picture: a box for each call that ranks wait in, and red boxes for those that are to blame.
#pragma once

#include <string>

#include "aml_dist/trace/trace_step.hpp"

namespace amldist::tools {

/// Arrows lead from a call to the calls that its missing ranks wait in meanwhile, or to a box of those that wait in no
/// call. At most 40 boxes; where nobody waits the picture says so.
[[nodiscard]] std::string draw_waits(const TracedStep& step);

}  // namespace amldist::tools
