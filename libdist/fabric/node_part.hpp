// The part of a verification that root runs on a node before its tasks start. It reads sysfs and opens no device.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/text/environment.hpp"
#include "fabric/report/verdict.hpp"
#include "launch/option/spec.hpp"

namespace amldist::fabric {

/// Result of the node part.
struct NodePart {
  std::vector<Check> checks;
  bool verified = false;  ///< at least one port was judged
  std::string hca;        ///< for NCCL_IB_HCA: "=mlx5_ib0:1,..."; empty without ports
  std::string gid_index;  ///< for NCCL_IB_GID_INDEX; empty: NCCL finds it itself
  std::string traits;     ///< what must be equal on all nodes: "0x0018,0x0022", the partitions; "-" without partitions

  [[nodiscard]] bool is_good() const noexcept;
};

/// Verifies this node in a separate process, which is killed after `timeout`: a driver whose firmware does not respond
/// can block a reader of sysfs for a minute. No answer is a failed check. `sku` is empty if no SKU is expected.
/// `unknown_fails`: under `require` an unknown check counts as failed.
[[nodiscard]] NodePart verify_node_apart(launch::RdmaPolicy policy, const std::string& sku, bool unknown_fails,
                                         const EnvironmentReader& environment, std::chrono::milliseconds timeout);

/// The variables to set for tasks on a verified node.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> fabric_settings(const NodePart& node);

/// The variables that restrict NCCL and UCX to sockets between nodes.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> socket_settings();

}  // namespace amldist::fabric
