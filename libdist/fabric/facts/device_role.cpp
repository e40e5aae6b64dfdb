#include "fabric/facts/device_role.hpp"

#include <algorithm>
#include <array>

namespace amldist::fabric {
namespace {

constexpr std::string_view microsoft = "0x1414";
constexpr std::string_view amazon = "0x1d0f";
constexpr std::string_view alibaba = "0x1ded";

bool is_below_netvsc(const NodeFacts& node, const DeviceFacts& device) {
  return std::ranges::any_of(device.netdevs, [&node](const std::string& name) {
    const auto found = node.netdevs.find(name);
    return found != node.netdevs.end() && found->second.master_driver == netvsc_driver;
  });
}

bool is_accelerator(const NodeFacts& node, const DeviceFacts& device) {
  if (device.name.starts_with("mlx5_an") || device.name.starts_with("mana")) return true;
  if (device.pci.vendor.text == microsoft || is_below_netvsc(node, device)) return true;
  // Azure has no RoCE: a function with an Ethernet port is that of the virtual machine's own interface. One of
  // Microsoft's boards without an address may be a port for InfiniBand in the wrong mode.
  const bool has_address = std::ranges::any_of(device.ports, has_routable_gid);
  const bool is_microsofts = device.board_id.text.starts_with("MSF") && has_address;
  return is_virtual_function(device) && (node.has_netvsc || is_microsofts);
}

bool is_efa(const DeviceFacts& device) {
  return device.pci.vendor.text == amazon || device.hca_type.text.starts_with("EFA") ||
         device.name.starts_with("efa_") || device.name.starts_with("rdmap");
}

/// RDMA_NODE_USNIC and RDMA_NODE_USNIC_UDP of the kernel's rdma/ib_verbs.h: datagrams only.
bool is_usnic(const DeviceFacts& device) {
  return device.node_type.text.starts_with("5") || device.node_type.text.starts_with("6");
}

bool is_for_managers(const NodeFacts& node, const DeviceFacts& device) {
  return device.uverbs.empty() && !device.pci.path.empty() &&
         std::ranges::any_of(node.devices, [&device](const DeviceFacts& other) {
           return !other.uverbs.empty() && other.pci.path == device.pci.path;
         });
}

}  // namespace

bool is_erdma(const DeviceFacts& device) {
  return device.pci.vendor.text == alibaba || device.name.starts_with("erdma_");
}

bool is_enslaved(const NodeFacts& node, const DeviceFacts& device) {
  return std::ranges::any_of(device.netdevs, [&node](const std::string& name) {
    const auto found = node.netdevs.find(name);
    return found != node.netdevs.end() && !found->second.master.empty();
  });
}

bool has_layer(const DeviceFacts& device, LinkLayer layer) noexcept {
  return std::ranges::any_of(
      device.ports, [layer](const PortFacts& port) { return port.link_layer.present() && port.layer() == layer; });
}

bool has_routable_gid(const PortFacts& port) noexcept {
  return std::ranges::any_of(port.gids, [](const GidEntry& entry) {
    return !entry.value.is_link_local() && !entry.value.is_ipv4_link_local();
  });
}

bool is_virtual_function(const DeviceFacts& device) noexcept {
  // From ConnectX-3 to ConnectX-7.
  constexpr std::array<std::string_view, 8> ids = {"0x1004", "0x1012", "0x1014", "0x1016",
                                                   "0x1018", "0x101a", "0x101c", "0x101e"};
  return device.pci.has_physfn || std::ranges::find(ids, device.pci.device.text) != ids.end();
}

DeviceRole role_of(const NodeFacts& node, const DeviceFacts& device) {
  if (is_usnic(device) || is_for_managers(node, device)) return DeviceRole::no_verbs;
  if (has_layer(device, LinkLayer::infiniband)) return DeviceRole::fabric;
  if (has_layer(device, LinkLayer::ethernet)) {
    if (device.node_type.text.starts_with("4") && !is_erdma(device)) return DeviceRole::iwarp;
    return is_accelerator(node, device) ? DeviceRole::accelerator : DeviceRole::fabric;
  }
  return has_layer(device, LinkLayer::other) && is_efa(device) ? DeviceRole::efa : DeviceRole::fabric;
}

}  // namespace amldist::fabric
