// The layout of a step as a picture: a standalone SVG document, for documentation and for people who ask where rank 5
// runs.
#pragma once

#include <string>

#include "launch/frameworks/task_environment.hpp"

namespace amldist::tools {

/// Nodes as boxes in the order of NODE_RANK, tasks as cells with rank and local rank, rank 0 marked. At most 16 nodes
/// and 32 tasks of each are drawn; the picture says what it leaves out.
[[nodiscard]] std::string draw_layout(const launch::StepPlan& plan);

}  // namespace amldist::tools
