#include "aml_dist/check/check_metrics.hpp"

#include "shared/metrics.hpp"

namespace amldist::tools {
namespace {

using commands::Gauge;
using fabric::Check;
using fabric::Verdict;

double severity_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fail:
      return 3;
    case Verdict::warn:
      return 2;
    case Verdict::unknown:
      return 1;
    case Verdict::pass:
    case Verdict::skip:
      break;
  }
  return 0;
}

/// All gauges of a verification.
struct CheckMetrics {
  Gauge severity{"aml_dist_check_severity", "Result of a check: 0 pass or skip, 1 unknown, 2 warn, 3 fail."};
  Gauge verdict{"aml_dist_check_verdict", "1 for the verdict that a check has."};
  Gauge node{"aml_dist_node_severity", "The worst result of a node's checks, as aml_dist_check_severity."};
  Gauge port{"aml_dist_port_healthy", "1: the port is active, and no failed check names it."};

  void add(const std::string& host, const std::vector<Check>& checks) {
    for (const Check& check : checks) {
      severity.add({{"node", host}, {"check", check.id}}, severity_of(check.verdict));
      verdict.add({{"node", host}, {"check", check.id}, {"verdict", std::string(to_string(check.verdict))}}, 1);
    }
  }
  void add_whole(const std::string& host, Verdict worst) { node.add({{"node", host}}, severity_of(worst)); }
  void add_ports(const fabric::NodeSummary& summary) {
    for (const fabric::PortSummary& each : summary.ports) {
      port.add({{"node", summary.host}, {"port", each.name}}, each.sick ? 0 : 1);
    }
  }
  [[nodiscard]] std::string text() const { return commands::to_openmetrics({severity, verdict, node, port}); }
};

}  // namespace

std::string to_metrics(const NodeVerification& node) {
  CheckMetrics metrics;
  metrics.add(node.host, node.report.checks);
  metrics.add_whole(node.host, node.report.verdict());
  metrics.add_ports(node.summary);
  return metrics.text();
}

std::string to_metrics(const StepReport& step) {
  CheckMetrics metrics;
  metrics.add("", step.report.checks);
  metrics.add_whole("", step.report.verdict());
  for (const fabric::NodeSummary& node : step.nodes) {
    metrics.add(node.host, node.checks);
    const fabric::Report own = {step.report.policy, node.checks, node.verified, step.report.unknown_fails};
    metrics.add_whole(node.host, own.verdict());
    metrics.add_ports(node);
  }
  return metrics.text();
}

}  // namespace amldist::tools
