// Checks that compare all nodes of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/checks/siblings.hpp"
#include "fabric/facts/gpu_state.hpp"

namespace amldist::fabric {

/// A judged port, for the picture of the step.
struct PortSummary {
  std::string name;   ///< "mlx5_ib0:1"
  std::string text;   ///< "400 Gb/sec (4X NDR)", or its state when it is not active
  bool sick = false;  ///< not active, or named by a failed check
};

/// One node's result, as it is sent to the others.
struct NodeSummary {
  std::string host;
  bool verified = false;
  std::vector<Check> checks;
  std::vector<PortSummary> ports;
  /// The values by which nodes are compared: "pkey", "rate", "ports", "firmware:BOARD", "gpu_driver", "nvlink"; and the
  /// settings for NCCL on this node: "nccl_ib_hca", "nccl_ib_gid_index", which may differ.
  std::map<std::string, std::string, std::less<>> traits;
};

[[nodiscard]] NodeSummary summarise(const NodeFacts& node, const CheckRequest& request, const Report& report);
/// Adds the traits that only the GPUs' driver knows.
void add_gpu_traits(NodeSummary& summary, const GpuStates& gpus);

/// Adds the traits of the libraries that a process loads.
void add_process_traits(NodeSummary& summary, const ProcessFacts& process);

/// The nodes that differ from most others, judged by their hosts and traits.
[[nodiscard]] std::vector<Difference> differences_between(const std::vector<NodeSummary>& nodes);

/// Conversion to and from the wire format. Errors: invalid_argument.
[[nodiscard]] std::string to_text(const NodeSummary& summary);
[[nodiscard]] Result<NodeSummary> summary_from_text(std::string_view text);

/// The same write from a GPU's memory to a GPU's (GPUDirect).
struct GpuSpeed {
  double gbps = 0;      ///< 0: not measured
  std::string reason;   ///< if that is no fault, why it was not measured, or only to the host's memory
  std::string problem;  ///< what went wrong
};

/// Result of the write between one pair of nodes.
struct PairResult {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::string device;     ///< of the writer, "mlx5_ib0:1"
  std::string problem;    ///< empty: the bytes arrived
  double gbps = 0;        ///< 0: not measured
  double latency_us = 0;  ///< of a write of 8 bytes; 0: not measured
  GpuSpeed gpu = {};      ///< if measured
};
[[nodiscard]] std::string to_line(const PairResult& result);
[[nodiscard]] Result<std::vector<PairResult>> pairs_from_lines(std::string_view text);

/// Results of the writes between nodes; `reason`: why there are no results.
struct PairResults {
  std::vector<PairResult> pairs;
  std::string reason;
  double least_gbps = 0;  ///< a measured pair below this is slow; 0: not checked
};

/// The checks of the whole step: those of each node, naming the nodes that deviate, and those between nodes (equal
/// partition keys, rates, ports and firmware; ib.pair).
[[nodiscard]] Report verify_job(const std::vector<NodeSummary>& nodes, const PairResults& pairs,
                                launch::RdmaPolicy policy);

}  // namespace amldist::fabric
