// What one node's sysfs says about its fabric. It is not judged here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/facts/attribute.hpp"
#include "fabric/facts/port_values.hpp"

namespace amldist::fabric {

/// The driver of a virtual machine's own interface on Hyper-V, the master of an accelerated function.
inline constexpr std::string_view netvsc_driver = "hv_netvsc";

/// Where the facts come from. Folders other than /sys and /dev describe another machine or a test tree; then it is not
/// checked what this process can do with devices.
struct Roots {
  std::string sys = "/sys";
  std::string dev = "/dev";
  bool sys_injected = false;
  bool dev_injected = false;

  /// --sysfs-root and --dev-root; empty: this machine's. A folder with a whole root (DIR/sys, DIR/dev) is accepted too.
  [[nodiscard]] static Roots from_options(const std::string& sysfs_root, const std::string& dev_root);
};

struct GidEntry {
  std::uint32_t index = 0;
  Gid value;
  std::string type;    ///< "RoCE v2", "IB/RoCE v1"; empty: unknown
  std::string netdev;  ///< gid_attrs/ndevs
};

struct PkeyEntry {
  std::uint32_t index = 0;
  std::uint16_t value = 0;
};

struct PortFacts {
  std::uint32_t number = 1;
  Attribute state;
  Attribute phys_state;
  Attribute link_layer;
  Attribute rate;
  Attribute lid;
  Attribute sm_lid;
  std::vector<PkeyEntry> pkeys;  ///< entries in use (not 0x0000)
  std::string pkeys_problem;     ///< why the table cannot be judged; empty if it can
  std::vector<GidEntry> gids;    ///< entries that are not zero
  std::string gids_problem;
  std::map<std::string, Attribute, std::less<>> counters;

  [[nodiscard]] LinkLayer layer() const noexcept {
    return link_layer.present() ? parse_link_layer(link_layer.text) : LinkLayer::other;
  }
  [[nodiscard]] bool is_active() const { return state.present() && parse_state(state.text) == PortState::active; }
};

/// A bridge between a card and the root complex.
struct BridgeFacts {
  std::string address;  ///< "0000:16:01.0"
  Attribute current_width, max_width, current_speed, max_speed;
  std::optional<std::uint16_t>
      acs;  ///< access control (ACS Control Register); nullopt: not supported, or only root may read it
};

struct PciFacts {
  std::string path;  ///< resolved, "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"; empty: not on a PCI bus
  Attribute vendor;
  Attribute device;
  Attribute numa_node;
  Attribute current_speed, max_speed, current_width, max_width;
  bool has_physfn = false;
  std::vector<BridgeFacts> bridges;  ///< nearest first
  /// Totals of the kernel's error reports (AER); nullopt: not reported.
  std::optional<std::uint64_t> aer_correctable, aer_nonfatal, aer_fatal;
};

struct DeviceFacts {
  std::string name;
  std::vector<PortFacts> ports;
  std::string ports_problem;
  Attribute fw_ver;
  Attribute board_id;
  Attribute hca_type;
  Attribute node_guid;
  Attribute node_type;  ///< "1: CA"; "4: RNIC" is iWARP
  PciFacts pci;
  std::vector<std::string> netdevs;
  std::string uverbs;  ///< "uverbs0"; empty: unknown
};

struct NetFacts {
  Attribute operstate;
  Attribute carrier_down_count;
  Attribute mtu;
  Attribute address;        ///< of the hardware, "a0:88:c2:00:00:01"
  bool infiniband = false;  ///< IPoIB (ARPHRD_INFINIBAND)
  /// Priorities with flow control, and with congestion control as the receiver (roce_np) and as the sender (roce_rp):
  /// bit 3 for priority 3; nullopt: not told.
  std::optional<std::uint8_t> flow_control, notifies, reacts;
  std::string master;         ///< the interface that it is enslaved to; may be empty
  std::string driver;         ///< "hv_netvsc", "mlx5_core"; empty: unknown
  std::string master_driver;  ///< of the master
};

/// A PCI function of a network card, with or without an RDMA device.
struct NetworkFunction {
  std::string address;      ///< "0000:17:00.0"
  std::string vendor;       ///< "0x15b3"
  std::string device;       ///< "0x1021"
  std::string driver;       ///< "mlx5_core"; empty if no driver is bound
  bool infiniband = false;  ///< PCI class 0x0207
};

struct GpuFacts {
  std::string address;  ///< "0000:01:00.0"
  std::string path;     ///< as PciFacts::path
  Attribute numa_node;
  bool nvidia = true;
  Attribute model;  ///< PCI device id
  Attribute current_width, max_width, max_speed;
  std::vector<BridgeFacts> bridges;  ///< nearest first
  std::string driver;                ///< the name of the driver that it is bound to
};

/// Whether this driver reserves a PCI function for a virtual machine or a program, so that it must not be judged.
[[nodiscard]] bool is_given_away(std::string_view driver) noexcept;

/// Whether two resolved PCI paths diverge below a bridge, and not at the root complex.
[[nodiscard]] bool share_bridge(std::string_view one, std::string_view other);

struct NodeFacts {
  Roots roots;
  std::string host;
  bool has_class = false;        ///< /sys/class/infiniband exists
  bool has_verbs_class = false;  ///< /sys/class/infiniband_verbs exists: ib_uverbs is loaded
  std::string class_problem;     ///< the folder exists but cannot be read, or has too many entries
  std::vector<DeviceFacts> devices;
  std::map<std::string, NetFacts, std::less<>> netdevs;
  std::vector<GpuFacts> gpus;
  std::vector<NetworkFunction> network_functions;  ///< of Mellanox and NVIDIA
  std::string pci_problem;                         ///< bus/pci/devices is there and cannot be read
  bool has_netvsc = false;                         ///< an interface of Hyper-V exists: a virtual machine on Azure
  bool nvidia_driver = false;
  bool amd_driver = false;
  bool imex_channel = false;  ///< /dev/nvidia-caps-imex-channels has a channel that this process may open
  Attribute mlx5_version;     ///< module/mlx5_core/version: present with MLNX_OFED only
  Attribute gpu_version;      ///< module/nvidia/version, else module/amdgpu/version
  std::string peer_memory;    ///< the kernel module that provides GPUDirect: "nvidia_peermem 535.1"; may be empty
};

/// Most devices and ports that are examined; real nodes have up to 32.
inline constexpr std::size_t most_devices = 256;
inline constexpr std::size_t most_ports = 16;

/// Reads all of the above. Reads files only and never opens a device; time is bounded by the number of devices.
[[nodiscard]] NodeFacts read_node(const Roots& roots);

/// Whether the node has any device. Cheaper than read_node().
[[nodiscard]] bool has_devices(const Roots& roots);

}  // namespace amldist::fabric
