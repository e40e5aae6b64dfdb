// `srun aml-dist check`: all nodes of the running step, and the network between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aml_dist/check/check.hpp"
#include "aml_dist/check/check_output.hpp"
#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/between_nodes/node_exchange.hpp"

namespace amldist::tools {

/// What this process knows about its step.
struct StepContext {
  fabric::NodePlace own;
  bool takes_part = false;  ///< one process of each node takes part; the others have nothing to do
};

/// The context, from Slurm's variables; nullopt outside a step of several nodes. Errors: invalid_argument when they
/// contradict each other.
[[nodiscard]] Result<std::optional<StepContext>> read_step_context(const EnvironmentReader& environment,
                                                                   std::uint32_t port);

/// Measures each port of this node by writes to itself, and adds ib.bandwidth and ib.latency.
void add_own_speed(const CheckOptions& options, const fabric::NodeFacts& node, const fabric::CheckRequest& request,
                   fabric::Report& report);

/// Connects to the other nodes, writes to the neighbours, and gathers everything at node 0. Returns the verdict of the
/// whole step on every node; the output on node 0 only.
struct StepOutcome {
  fabric::Verdict verdict = fabric::Verdict::fail;
  std::optional<StepReport> whole;
};
[[nodiscard]] Result<StepOutcome> verify_step(const StepContext& context, const CheckOptions& options,
                                              const fabric::NodeFacts& node, const fabric::CheckRequest& request,
                                              const fabric::NodeSummary& own);

}  // namespace amldist::tools
