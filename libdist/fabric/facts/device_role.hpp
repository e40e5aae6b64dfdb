// The role of an RDMA device: part of the fabric, or something that only looks like it.
#pragma once

#include <string>

#include "fabric/facts/node_facts.hpp"

namespace amldist::fabric {

enum class DeviceRole {
  fabric,       ///< InfiniBand or RoCE
  accelerator,  ///< Azure's Accelerated Networking: an Ethernet function below the virtual machine's own interface
  iwarp,        ///< RDMA over TCP, which NCCL and UCX cannot use (but Alibaba's eRDMA is `fabric`)
  no_verbs,     ///< nothing that verbs can use: the managers' view of a card's planes (SMI), Cisco's usNIC
  efa,          ///< AWS's adapter: used through libfabric, not through NCCL's verbs
};

/// The role of a device. A device with an InfiniBand port is part of the fabric. Accelerated Networking is recognised
/// by the driver of its interface's master (hv_netvsc), by Microsoft's PCI vendor id, by its name (mlx5_an*, mana*),
/// or as a virtual function on a virtual machine of Hyper-V, or with an address on one of Microsoft's
/// boards. A device without uverbs
/// beside another of the same PCI function that has it is only for managers.
[[nodiscard]] DeviceRole role_of(const NodeFacts& node, const DeviceFacts& device);

/// Whether a function is virtual: it has a physical function, or one of the PCI ids of Mellanox's virtual functions.
[[nodiscard]] bool is_virtual_function(const DeviceFacts& device) noexcept;

/// Whether NCCL uses a device although its node type says iWARP: Alibaba's eRDMA. Its GIDs have no RoCE version.
[[nodiscard]] bool is_erdma(const DeviceFacts& device);

/// Whether a port has a GID that can be routed: neither zero nor link-local (fe80::/64, 169.254.0.0/16).
[[nodiscard]] bool has_routable_gid(const PortFacts& port) noexcept;

/// Whether an interface of the device belongs to another one, such as a bond or a bridge.
[[nodiscard]] bool is_enslaved(const NodeFacts& node, const DeviceFacts& device);

/// Whether a device has a port of the layer.
[[nodiscard]] bool has_layer(const DeviceFacts& device, LinkLayer layer) noexcept;

}  // namespace amldist::fabric
