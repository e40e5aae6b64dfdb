// A verification as metrics for Prometheus.
#pragma once

#include <string>

#include "aml_dist/check/check_output.hpp"

namespace amldist::tools {

/// Gauges, in a text that is both OpenMetrics and what node_exporter's textfile collector reads:
///
///   aml_dist_check_severity{node="n1",check="ib.state"} 3      0 pass or skip, 1 unknown, 2 warn, 3 fail
///   aml_dist_check_verdict{node="n1",check="ib.state",verdict="fail"} 1
///   aml_dist_node_severity{node="n1"} 3                        of the node as a whole
///   aml_dist_port_healthy{node="n1",port="mlx5_ib0:1"} 0       1: active, and no failed check names it
[[nodiscard]] std::string to_metrics(const NodeVerification& node);
/// The same for each node of a step, and with node="" for the step as a whole.
[[nodiscard]] std::string to_metrics(const StepReport& step);

}  // namespace amldist::tools
