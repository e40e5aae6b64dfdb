// What to verify: how strictly, what the node should have, and what the user has selected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/environment.hpp"
#include "fabric/facts/device_role.hpp"
#include "fabric/facts/node_facts.hpp"
#include "fabric/facts/selection.hpp"
#include "fabric/sku/sku_table.hpp"
#include "launch/option/spec.hpp"

namespace amldist::fabric {

struct CheckRequest {
  launch::RdmaPolicy policy = launch::RdmaPolicy::prefer;
  std::string policy_source = "default";  ///< for evidence: "--policy", "the SKU", "plugstack.conf"
  std::optional<Sku> sku;
  bool unknown_fails = false;  ///< unknown=fail: under `require` a check whose verdict is unknown fails
  EnvironmentReader environment = [](std::string_view) { return std::nullopt; };

  [[nodiscard]] bool requires_fabric() const noexcept {
    return policy == launch::RdmaPolicy::require || (sku && sku->has_verbs());
  }
  [[nodiscard]] bool expects(Sku::Fabric fabric) const noexcept { return sku && sku->fabric == fabric; }
};

/// A port that is judged.
struct JudgedPort {
  const DeviceFacts* device = nullptr;
  const PortFacts* port = nullptr;

  [[nodiscard]] PortName name() const { return {device->name, port->number}; }
};

/// Cards of one model: they should behave alike.
[[nodiscard]] std::string model_of(const DeviceFacts& device);

/// The place of a port on its card, "0/1": function and port number. Cards of one model are mostly cabled alike.
[[nodiscard]] std::string place_of(const JudgedPort& each);

/// A port that belongs to the fabric's kind and is not judged, with the reason.
struct UnusedPort {
  PortName name;
  std::string why;
  bool may_be_sick = false;  ///< it is waiting for the other end of a cable, and nobody has said that it may
};

/// The ports that are judged, and those that are not although they could be taken for part of the fabric.
struct PortChoice {
  std::vector<JudgedPort> judged;
  std::vector<UnusedPort> unused;
};

/// The ports to judge, in the node's order: those that the user's NCCL_IB_HCA names (if any exist), else those of the
/// SKU's hca=, else the InfiniBand ports, else, if InfiniBand is not expected, the Ethernet ports. Left out are
/// functions of Azure's Accelerated Networking, devices for which NCCL has no verbs (EFA, iWARP), and unused ports: the
/// second port of a card with one cable, a port that is switched off, an idle virtual function, an Ethernet port
/// without an address, a card of another chip than most that has no link or half their rate. A SKU's devices= keeps
/// ports in that would otherwise be too few. A port with an unreadable link layer is judged.
[[nodiscard]] PortChoice choose_ports(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] std::vector<JudgedPort> judged_ports(const NodeFacts& node, const CheckRequest& request);
/// Those of them that are active.
[[nodiscard]] std::vector<JudgedPort> active_ports(const NodeFacts& node, const CheckRequest& request);

/// The devices that count for the SKU's devices=: those of its fabric, within its hca=, whatever the user has selected.
[[nodiscard]] std::vector<const DeviceFacts*> counted_devices(const NodeFacts& node, const CheckRequest& request);

}  // namespace amldist::fabric
