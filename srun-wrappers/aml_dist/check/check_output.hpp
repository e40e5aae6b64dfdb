// The output of a verification: a table with colours for people, JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "fabric/between_nodes/floors.hpp"
#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::tools {

/// One node's verification and its subject.
struct NodeVerification {
  std::string host;
  fabric::Report report;
  fabric::FabricSettings settings;
  fabric::NodeSummary summary;
};

/// A step as a whole: its own checks, and each node's.
struct StepReport {
  std::vector<fabric::NodeSummary> nodes;
  fabric::Report report;
  std::vector<fabric::PairResult> pairs;
  std::vector<fabric::SlowPart> slow = {};  ///< under --bench
};

/// "node3,node7": the nodes that fail a check by themselves or are slow, and those at the end of a write that failed.
[[nodiscard]] std::string nodes_to_exclude(const StepReport& step);

/// A line for the whole, then a line for each check and its remedy. `quiet`: only warnings and failures.
[[nodiscard]] std::string to_table(const NodeVerification& node, bool colour, bool quiet);

/// An object: schema, node, policy, verdict, checks (id, verdict, evidence, remedy), nccl_ib_hca, nccl_ib_gid_index.
[[nodiscard]] std::string to_json(const NodeVerification& node);

/// The checks over all nodes, and a line for each node.
[[nodiscard]] std::string to_table(const StepReport& step, bool colour, bool quiet);

/// An object: schema, policy, verdict, checks, the settings for NCCL that all nodes share, and nodes: an array of node,
/// verdict, checks and the node's settings.
[[nodiscard]] std::string to_json(const StepReport& step);

}  // namespace amldist::tools
