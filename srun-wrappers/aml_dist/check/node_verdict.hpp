// A verification as NVIDIA Health Validation writes its own: NodeVerdict.
#pragma once

#include <string>

#include "aml_dist/check/check_output.hpp"

namespace amldist::tools {

/// An object: node, overall_severity (PASS, INFO, WARNING, CRITICAL, UNKNOWN), checks, affected_components.
[[nodiscard]] std::string to_nodeverdict(const NodeVerification& node);

/// An array of them, of the step's nodes.
[[nodiscard]] std::string to_nodeverdict(const StepReport& step);

}  // namespace amldist::tools
