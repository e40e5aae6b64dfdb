#include "fabric/question.hpp"

namespace amldist::fabric {
namespace {

std::vector<JudgedPort> all_ports(const NodeFacts& node) {
  std::vector<JudgedPort> ports;
  for (const DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) ports.push_back({&device, &port});
  }
  return ports;
}

std::vector<JudgedPort> selected(std::vector<JudgedPort> ports, std::string_view selection) {
  const NcclSelection choice = NcclSelection::parse(selection);
  std::erase_if(ports, [&](const JudgedPort& each) { return !choice.takes(each.device->name, each.port->number); });
  return ports;
}

bool is_unknown(const JudgedPort& each) { return !each.port->link_layer.present(); }

/// The InfiniBand ports if there are any or if they are expected, else the Ethernet ports.
std::vector<JudgedPort> fabric_ports(std::vector<JudgedPort> ports, bool expects_infiniband) {
  bool has_infiniband = expects_infiniband;
  for (const JudgedPort& each : ports) has_infiniband |= each.port->layer() == LinkLayer::infiniband;
  const LinkLayer wanted = has_infiniband ? LinkLayer::infiniband : LinkLayer::ethernet;
  std::erase_if(ports, [wanted](const JudgedPort& each) {
    if (is_unknown(each)) return false;
    return each.port->layer() != wanted ||
           (wanted == LinkLayer::ethernet && is_accelerated_networking(each.device->name));
  });
  return ports;
}

}  // namespace

bool is_accelerated_networking(std::string_view device) noexcept {
  return device.starts_with("mlx5_an") || device.starts_with("mana");
}

std::vector<JudgedPort> judged_ports(const NodeFacts& node, const Question& question) {
  const std::vector<JudgedPort> ports = all_ports(node);
  const auto requested = question.environment("NCCL_IB_HCA");
  if (requested && !requested->empty()) {
    const NcclSelection choice = NcclSelection::parse(*requested);
    // NCCL would add no exclusions to a negative list; our default set is kept.
    if (auto chosen = selected(ports, *requested); !chosen.empty()) {
      const bool names_ports = !choice.excludes() && !choice.entries().empty();
      if (names_ports) return chosen;
      return fabric_ports(std::move(chosen), question.sku && question.sku->fabric == Sku::Fabric::infiniband);
    }
  }
  if (question.sku && !question.sku->hca.empty()) return selected(ports, question.sku->hca);
  return fabric_ports(ports, question.sku && question.sku->fabric == Sku::Fabric::infiniband);
}

}  // namespace amldist::fabric
