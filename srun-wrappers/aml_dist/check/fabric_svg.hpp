// A verification as a picture: nodes with their ports on the left, the fabric on the right, and between them one edge
// for each port; what fails is red.
#pragma once

#include <string>

#include "aml_dist/check/check_output.hpp"

namespace amldist::tools {

/// A standalone SVG document. At most 16 nodes and 16 ports of each are drawn, sick ones first; the picture says what
/// it leaves out.
[[nodiscard]] std::string draw_fabric(const NodeVerification& node);
[[nodiscard]] std::string draw_fabric(const StepReport& step);

}  // namespace amldist::tools
