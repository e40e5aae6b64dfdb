// The ranks that others wait for, as metrics.
#pragma once

#include <string>

#include "aml_dist/trace/trace_step.hpp"

namespace amldist::tools {

/// Gauges: the calls of the step that cannot end; for each rank that others wait for, how long and by how many ranks;
/// for each recorder, whether its process runs.
[[nodiscard]] std::string to_metrics(const TracedStep& step);

}  // namespace amldist::tools
