// The part of a verification that root does on a node before its tasks start: sysfs only, no device is opened.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "core/spec.hpp"
#include "fabric/verdict.hpp"

namespace amldist::fabric {

/// What a node part comes to.
struct NodePart {
  std::vector<Check> checks;
  bool verified = false;  ///< there were ports to judge
  std::string hca;        ///< for NCCL_IB_HCA: "=mlx5_ib0:1,..."; empty without ports
  std::string gid_index;  ///< for NCCL_IB_GID_INDEX; empty: NCCL finds it by itself
  std::string traits;     ///< what must be equal on all nodes: "PKEY/GID", such as "0x0018/-"

  [[nodiscard]] bool is_good() const noexcept;
};

/// Verifies this node in a process of its own that is killed when `timeout` has passed: a driver whose firmware does
/// not answer can hold a reader of sysfs for a minute. Not being answered is a failed check. `sku` empty: none.
[[nodiscard]] NodePart verify_node_apart(RdmaPolicy policy, const std::string& sku,
                                         const EnvironmentReader& environment, std::chrono::milliseconds timeout);

/// The settings for tasks on a node that was verified, by variable.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> fabric_settings(const NodePart& node);

/// The settings by which NCCL and UCX use sockets, and nothing but sockets between nodes.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> socket_settings();

}  // namespace amldist::fabric
