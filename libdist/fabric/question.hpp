// What to verify: how strict, what the node should have, and what the user has selected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/environment.hpp"
#include "core/spec.hpp"
#include "fabric/node_facts.hpp"
#include "fabric/selection.hpp"
#include "fabric/sku_table.hpp"

namespace amldist::fabric {

struct Question {
  RdmaPolicy policy = RdmaPolicy::prefer;
  std::string policy_source = "default";  ///< for evidence: "--policy", "the SKU", "plugstack.conf"
  std::optional<Sku> sku;
  EnvironmentReader environment = [](std::string_view) { return std::nullopt; };

  [[nodiscard]] bool requires_fabric() const noexcept {
    return policy == RdmaPolicy::require || (sku && sku->has_verbs());
  }
};

/// A port that is judged.
struct JudgedPort {
  const DeviceFacts* device = nullptr;
  const PortFacts* port = nullptr;

  [[nodiscard]] PortName name() const { return {device->name, port->number}; }
};

/// Whether a device is Azure Accelerated Networking (mlx5_an*, mana*): an Ethernet function, not part of the fabric.
[[nodiscard]] bool is_accelerated_networking(std::string_view device) noexcept;

/// The ports to judge, in the node's order: those that the user's NCCL_IB_HCA names (if any exist), else those of the
/// SKU's hca=, else the InfiniBand ports, else, if InfiniBand is not expected, the Ethernet ports without Accelerated
/// Networking. A port with an unreadable link layer is judged too.
[[nodiscard]] std::vector<JudgedPort> judged_ports(const NodeFacts& node, const Question& question);

}  // namespace amldist::fabric
