// `aml-dist check --task-part`: run by the plugin before a step's tasks start, as the user: the checks that only a
// task's own process can make, as lines.
#pragma once

#include "aml_dist/check/check.hpp"
#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/checks/check_request.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::tools {

/// The writes to other nodes; the nodes exchange what they need through the step's srun. Empty if no writes are wanted,
/// or if the step is decided before they end.
[[nodiscard]] std::vector<fabric::Check> write_between_nodes(const CheckOptions& options, const fabric::NodeFacts& node,
                                                             const fabric::CheckRequest& request);

/// Tells srun the values by which this node is compared with the others, before they vote; at once, or after two
/// seconds without an answer: an srun that does not compare is no reason to wait.
void tell_settings(const CheckOptions& options, const fabric::NodeSummary& node, launch::RdmaPolicy policy);

}  // namespace amldist::tools
