#include "fabric/facts/node_facts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/net/own_network.hpp"
#include "base/net/priority_flow_control.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t most_pci_devices = 8192;

/// Counters that the checks use: those of InfiniBand (Documentation/ABI/stable/sysfs-class-infiniband), and those of
/// lost and late packets of mlx5, bnxt_re, ionic and rxe. Others are not read, since each may be a question to the
/// firmware.
constexpr std::array<std::string_view, 41> counter_names = {"symbol_error",
                                                            "link_error_recovery",
                                                            "link_downed",
                                                            "port_rcv_errors",
                                                            "port_xmit_discards",
                                                            "local_link_integrity_errors",
                                                            "excessive_buffer_overrun_errors",
                                                            "port_rcv_remote_physical_errors",
                                                            "port_xmit_constraint_errors",
                                                            "port_rcv_constraint_errors",
                                                            "out_of_sequence",
                                                            "packet_seq_err",
                                                            "local_ack_timeout_err",
                                                            "rnr_nak_retry_err",
                                                            "req_transport_retries_exceeded",
                                                            "implied_nak_seq_err",
                                                            "duplicate_request",
                                                            "roce_adp_retrans",
                                                            "out_of_buffer",
                                                            "roce_slow_restart",
                                                            "rp_cnp_handled",
                                                            "np_ecn_marked_roce_packets",
                                                            "np_cnp_sent",
                                                            "rp_cnp_ignored",
                                                            "to_retransmits",
                                                            "seq_err_naks_rcvd",
                                                            "max_retry_exceeded",
                                                            "rnr_naks_rcvd",
                                                            "oos_drop_count",
                                                            "rx_roce_discards",
                                                            "req_rx_pkt_seq_err",
                                                            "req_tx_retry_excd_err",
                                                            "tx_rdma_ack_timeout",
                                                            "out_of_seq_request",
                                                            "rcvd_seq_err",
                                                            "retry_exceeded_err",
                                                            "retrans_timeout_events",
                                                            "unresponsive_remote_events",
                                                            "impaired_remote_conn_events",
                                                            "rx_drops",
                                                            "tcpRetransSegs"};

/// The total in a file of AER: the last line, "TOTAL_ERR_COR 17".
std::optional<std::uint64_t> aer_total(const std::string& path) {
  const std::string content = read_file_start(path, longest_attribute);
  const auto total = content.rfind("TOTAL_ERR_");
  const auto blank = content.find(' ', std::min(total, content.size()));
  if (blank == std::string::npos) return std::nullopt;
  const auto end = std::min(content.find('\n', blank), content.size());
  return text::to_number(std::string_view(content).substr(blank + 1, end - blank - 1), 1'000'000'000'000);
}

/// The control register of a bridge's ACS capability, from its configuration space; nullopt if it lacks the capability,
/// or the reader is not root and sees the first 64 bytes only.
std::optional<std::uint16_t> read_acs(const std::string& folder) {
  constexpr std::size_t first_extended = 256;
  constexpr std::uint32_t acs = 0x000d;  // PCI Express Base Specification, 7.7.11
  const std::string config = read_file_start(folder + "/config", longest_attribute);
  const auto byte_at = [&config](std::size_t at) { return std::uint32_t{static_cast<unsigned char>(config[at])}; };
  std::size_t at = first_extended;
  for (int seen = 0; seen < 48 && at >= first_extended && at + 8 <= config.size(); ++seen) {
    const std::uint32_t header = byte_at(at) | byte_at(at + 1) << 8 | byte_at(at + 2) << 16 | byte_at(at + 3) << 24;
    if ((header & 0xffff) == acs) return static_cast<std::uint16_t>(byte_at(at + 6) | byte_at(at + 7) << 8);
    at = header >> 20;
  }
  return std::nullopt;
}

/// The bridges above a card: the folders of its resolved path that have a link.
std::vector<BridgeFacts> read_bridges(std::string path) {
  constexpr std::size_t most_bridges = 8;
  std::vector<BridgeFacts> bridges;
  while (bridges.size() < most_bridges) {
    path.resize(std::min(path.rfind('/'), path.size()));
    const std::string name = path.substr(std::min(path.rfind('/') + 1, path.size()));
    if (name.find('.') == std::string::npos) break;
    bridges.push_back({name, read_attribute(path + "/current_link_width"), read_attribute(path + "/max_link_width"),
                       read_attribute(path + "/current_link_speed"), read_attribute(path + "/max_link_speed"),
                       read_acs(path)});
  }
  return bridges;
}

std::optional<std::uint32_t> number_of(std::string_view name, std::uint32_t most) {
  const auto number = text::to_number(name, most);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

/// Unused entries in a row after which a table is left. The kernel fills P_Keys from the start. GIDs of RoCE are added
/// and removed with the addresses of interfaces and namespaces: on a Kubernetes node the first 100 may be empty.
constexpr std::uint32_t longest_pkey_gap = 32;
constexpr std::uint32_t longest_gid_gap = 1024;

/// Reads the entries 0, 1, 2, ... of a table, up to its end or `longest_gap` unused entries in a row.
template <typename Value, typename Parse, typename Take>
void read_table(const std::string& folder, std::string_view table, std::uint32_t longest_gap, Parse parse, Take take,
                std::string& problem) {
  std::uint32_t unused = 0;
  for (std::uint32_t index = 0; unused < longest_gap; ++index) {
    const Attribute entry = read_attribute(concat({folder, "/", table, "/", std::to_string(index)}));
    if (entry.absent()) {
      if (index == 0) problem = concat({"there is no ", table, " table"});
      return;
    }
    const std::optional<Value> value = entry.present() ? parse(entry.text) : std::nullopt;
    if (!value) problem = concat({table, "/", std::to_string(index), " is ", entry.shown()});
    unused = value && take(index, *value) ? 0 : unused + 1;
  }
}

void read_pkeys(const std::string& folder, PortFacts& port) {
  read_table<std::uint16_t>(
      folder, "pkeys", longest_pkey_gap, parse_hex16,
      [&port](std::uint32_t index, std::uint16_t value) {
        if (value != 0) port.pkeys.push_back({index, value});
        return value != 0;
      },
      port.pkeys_problem);
}

void read_gids(const std::string& folder, PortFacts& port) {
  read_table<Gid>(
      folder, "gids", port.layer() == LinkLayer::infiniband ? longest_pkey_gap : longest_gid_gap, Gid::parse,
      [&](std::uint32_t index, const Gid& value) {
        if (value.is_zero()) return false;
        const std::string number = std::to_string(index);
        const Attribute type = read_attribute(concat({folder, "/gid_attrs/types/", number}));
        const Attribute netdev = read_attribute(concat({folder, "/gid_attrs/ndevs/", number}));
        port.gids.push_back({index, value, type.present() ? type.text : "", netdev.present() ? netdev.text : ""});
        return true;
      },
      port.gids_problem);
}

PortFacts read_port(const std::string& folder, std::uint32_t number) {
  PortFacts port;
  port.number = number;
  port.state = read_attribute(folder + "/state");
  port.phys_state = read_attribute(folder + "/phys_state");
  port.link_layer = read_attribute(folder + "/link_layer");
  port.rate = read_attribute(folder + "/rate");
  port.lid = read_attribute(folder + "/lid");
  port.sm_lid = read_attribute(folder + "/sm_lid");
  read_pkeys(folder, port);
  read_gids(folder, port);
  for (const std::string_view name : counter_names) {
    Attribute counter = read_attribute(concat({folder, "/counters/", name}));
    if (counter.absent()) counter = read_attribute(concat({folder, "/hw_counters/", name}));
    if (!counter.absent()) port.counters.emplace(name, std::move(counter));
  }
  return port;
}

PciFacts read_pci(const std::string& folder) {
  PciFacts pci;
  pci.path = resolved(folder);
  pci.vendor = read_attribute(folder + "/vendor");
  pci.device = read_attribute(folder + "/device");
  pci.numa_node = read_attribute(folder + "/numa_node");
  pci.current_speed = read_attribute(folder + "/current_link_speed");
  pci.max_speed = read_attribute(folder + "/max_link_speed");
  pci.current_width = read_attribute(folder + "/current_link_width");
  pci.max_width = read_attribute(folder + "/max_link_width");
  struct stat status = {};
  pci.has_physfn = ::lstat((folder + "/physfn").c_str(), &status) == 0;
  pci.bridges = read_bridges(pci.path);
  pci.aer_correctable = aer_total(folder + "/aer_dev_correctable");
  pci.aer_nonfatal = aer_total(folder + "/aer_dev_nonfatal");
  pci.aer_fatal = aer_total(folder + "/aer_dev_fatal");
  return pci;
}

DeviceFacts read_device(const std::string& folder, const std::string& name) {
  DeviceFacts device;
  device.name = name;
  for (const std::string& port : list_folder(folder + "/ports", most_ports, &device.ports_problem)) {
    if (const auto number = number_of(port, 255)) {
      device.ports.push_back(read_port(concat({folder, "/ports/", port}), *number));
    }
  }
  if (device.ports.empty() && device.ports_problem.empty()) device.ports_problem = "it has no ports";
  device.fw_ver = read_attribute(folder + "/fw_ver");
  device.board_id = read_attribute(folder + "/board_id");
  device.hca_type = read_attribute(folder + "/hca_type");
  device.node_guid = read_attribute(folder + "/node_guid");
  device.node_type = read_attribute(folder + "/node_type");
  device.pci = read_pci(folder + "/device");
  device.netdevs = list_folder(folder + "/device/net", most_ports, nullptr);
  for (const std::string& each : list_folder(folder + "/device/infiniband_verbs", most_ports, nullptr)) {
    if (each.starts_with("uverbs")) device.uverbs = each;
  }
  return device;
}

/// class/infiniband_verbs/uverbsN/ibdev names the device; older kernels list it only below the PCI device.
void name_uverbs(const std::string& sys, std::vector<DeviceFacts>& devices) {
  const std::string folder = sys + "/class/infiniband_verbs";
  for (const std::string& name : list_folder(folder, most_devices, nullptr)) {
    const Attribute device = read_attribute(concat({folder, "/", name, "/ibdev"}));
    const auto found = std::ranges::find(devices, device.text, &DeviceFacts::name);
    if (!device.present() || found == devices.end()) continue;
    // A second device of the same PCI function has no verbs of its own.
    for (DeviceFacts& each : devices) {
      if (each.uverbs == name) each.uverbs.clear();
    }
    found->uverbs = name;
  }
}

/// The last component of a symbolic link's target; empty if it is not a link.
std::string link_target_name(const std::string& path) {
  std::array<char, 1024> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  if (length <= 0) return {};
  const std::string_view text(target.data(), static_cast<std::size_t>(length));
  return std::string(text.substr(text.rfind('/') + 1));
}

constexpr std::size_t most_interfaces = 4096;
constexpr std::size_t longest_interface = 15;  // IFNAMSIZ

std::string driver_of(const std::string& sys, const std::string& netdev) {
  return link_target_name(concat({sys, "/class/net/", netdev, "/device/driver"}));
}

/// Priorities with congestion control: ecn/roce_np/enable/0..7 of NVIDIA's driver.
std::optional<std::uint8_t> read_congestion_control(const std::string& folder) {
  std::optional<std::uint8_t> out;
  for (unsigned priority = 0; priority < 8; ++priority) {
    const Attribute enabled = read_attribute(concat({folder, "/enable/", std::to_string(priority)}));
    if (!enabled.present()) continue;
    out = static_cast<std::uint8_t>(out.value_or(0) | (enabled.text == "1" ? 1U << priority : 0U));
  }
  return out;
}

NetFacts read_netdev(const Roots& roots, const std::string& name) {
  const std::string& sys = roots.sys;
  const std::string folder = concat({sys, "/class/net/", name});
  NetFacts net;
  net.infiniband = read_attribute(folder + "/type").text == "32";
  net.notifies = read_congestion_control(folder + "/ecn/roce_np");
  net.reacts = read_congestion_control(folder + "/ecn/roce_rp");
  if (!roots.sys_injected) net.flow_control = priorities_with_flow_control(name);
  net.operstate = read_attribute(folder + "/operstate");
  net.carrier_down_count = read_attribute(folder + "/carrier_down_count");
  net.mtu = read_attribute(folder + "/mtu");
  net.address = read_attribute(folder + "/address");
  net.master = link_target_name(folder + "/master");
  net.driver = driver_of(sys, name);
  if (!net.master.empty()) net.master_driver = driver_of(sys, net.master);
  return net;
}

/// The interfaces of the devices, including those that only their GIDs name (a bond). Hyper-V's interfaces name the
/// interfaces below them, which identifies the function of Accelerated Networking even if it has no link to its master.
void read_netdevs(const Roots& roots, NodeFacts& node) {
  const std::string& sys = roots.sys;
  for (DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) {
      for (const GidEntry& gid : port.gids) {
        const bool known = gid.netdev.empty() || gid.netdev.size() > longest_interface ||
                           gid.netdev.find('/') != std::string::npos ||
                           std::ranges::find(device.netdevs, gid.netdev) != device.netdevs.end();
        if (!known && device.netdevs.size() < most_ports) device.netdevs.push_back(gid.netdev);
      }
    }
    for (const std::string& name : device.netdevs) node.netdevs[name] = read_netdev(roots, name);
  }
  const std::string folder = sys + "/class/net";
  for (const std::string& name : list_folder(folder, most_interfaces, nullptr)) {
    if (driver_of(sys, name) != netvsc_driver) continue;
    node.has_netvsc = true;
    for (const std::string& entry : list_folder(concat({folder, "/", name}), 256, nullptr)) {
      constexpr std::string_view lower = "lower_";
      const auto found = entry.starts_with(lower) ? node.netdevs.find(entry.substr(lower.size())) : node.netdevs.end();
      if (found == node.netdevs.end() || !found->second.master.empty()) continue;
      found->second.master = name;
      found->second.master_driver = netvsc_driver;
    }
  }
}

/// PCI class 0x03xxxx (display, 3D controller) of the two vendors whose GPUs support collectives over RDMA, and class
/// 0x02xxxx (network) of the vendor of mlx5.
void read_pci_bus(const std::string& sys, NodeFacts& node) {
  const std::string folder = sys + "/bus/pci/devices";
  const auto addresses = list_folder(folder, most_pci_devices, &node.pci_problem);
  struct stat status = {};
  const bool is_there = ::stat(folder.c_str(), &status) == 0;
  if (is_there && !S_ISDIR(status.st_mode)) node.pci_problem = "not a folder";
  for (const std::string& address : addresses) {
    const std::string own = concat({folder, "/", address});
    const Attribute pci_class = read_attribute(own + "/class");
    const bool display = pci_class.text.starts_with("0x03") || pci_class.text.starts_with("0x12");
    const bool network = pci_class.text.starts_with("0x02");
    if (!display && !network) continue;
    const Attribute vendor = read_attribute(own + "/vendor");
    if (network && vendor.text == "0x15b3") {
      node.network_functions.push_back({address, vendor.text, read_attribute(own + "/device").text,
                                        link_target_name(own + "/driver"), pci_class.text.starts_with("0x0207")});
    }
    if (!display || (vendor.text != "0x10de" && vendor.text != "0x1002")) continue;
    const std::string path = resolved(own);
    node.gpus.push_back({address, path, read_attribute(own + "/numa_node"), vendor.text == "0x10de",
                         read_attribute(own + "/device"), read_attribute(own + "/current_link_width"),
                         read_attribute(own + "/max_link_width"), read_attribute(own + "/max_link_speed"),
                         read_bridges(path), link_target_name(own + "/driver")});
  }
}

/// Either of these makes NCCL use GPUDirect (ncclIbGdrSupport); so does DMA-BUF, which only verbs can test.
std::string read_peer_memory(const std::string& sys) {
  for (const std::string_view module : {"nvidia_peermem", "nv_peer_mem"}) {
    const std::string folder = concat({sys, "/module/", module});
    if (!is_folder(folder)) continue;
    const Attribute version = read_attribute(folder + "/version");
    return concat({module, version.present() ? " " : "", version.present() ? version.text : ""});
  }
  const std::string peers = sys + "/kernel/mm/memory_peers";
  for (const std::string& name : list_folder(peers, 64, nullptr)) {
    const Attribute version = read_attribute(concat({peers, "/", name, "/version"}));
    if (name.starts_with("nv_mem") && version.present()) return concat({"memory_peers/", name, " ", version.text});
  }
  return {};
}

bool has_imex_channel(const std::string& dev) {
  constexpr std::size_t most_channels = 4096;
  const std::string folder = dev + "/nvidia-caps-imex-channels";
  const auto names = list_folder(folder, most_channels, nullptr);
  return std::ranges::any_of(names, [&folder](const std::string& name) {
    return name.starts_with("channel") && ::access(concat({folder, "/", name}).c_str(), R_OK | W_OK) == 0;
  });
}

std::string own_host() {
  const std::string name = own_host_name();
  return name.empty() ? "unknown" : name;
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

bool is_given_away(std::string_view driver) noexcept {
  constexpr std::array<std::string_view, 4> drivers = {"vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio"};
  return std::ranges::find(drivers, driver) != drivers.end();
}

bool share_bridge(std::string_view one, std::string_view other) {
  const auto left = text::split(one, '/');
  const auto right = text::split(other, '/');
  // ".../pci0000:00/0000:00:01.0/...": only functions, including bridges, have a point in their names.
  for (std::size_t i = 0; i < std::min(left.size(), right.size()) && left[i] == right[i]; ++i) {
    if (left[i].starts_with("pci")) return i + 1 < std::min(left.size(), right.size()) && left[i + 1] == right[i + 1];
  }
  return false;
}

Roots Roots::from_options(const std::string& sysfs_root, const std::string& dev_root) {
  Roots roots;
  if (!sysfs_root.empty()) {
    roots.sys_injected = true;
    roots.sys = without_trailing_slashes(sysfs_root);
    if (!is_folder(roots.sys + "/class") && is_folder(roots.sys + "/sys/class")) roots.sys += "/sys";
  }
  if (!dev_root.empty()) {
    roots.dev_injected = true;
    roots.dev = without_trailing_slashes(dev_root);
    if (!is_folder(roots.dev + "/infiniband") && is_folder(roots.dev + "/dev/infiniband")) roots.dev += "/dev";
  }
  return roots;
}

NodeFacts read_node(const Roots& roots) {
  NodeFacts node;
  node.roots = roots;
  node.host = own_host();
  const std::string folder = roots.sys + "/class/infiniband";
  node.has_class = is_folder(folder);
  node.has_verbs_class = is_folder(roots.sys + "/class/infiniband_verbs");
  for (const std::string& name : list_folder(folder, most_devices, &node.class_problem)) {
    const std::string own = concat({folder, "/", name});
    if (is_folder(own)) node.devices.push_back(read_device(own, name));
    else node.class_problem = concat({name, " is not an accessible folder"});
  }
  name_uverbs(roots.sys, node.devices);
  read_netdevs(roots, node);
  read_pci_bus(roots.sys, node);
  node.nvidia_driver = is_folder(roots.sys + "/module/nvidia");
  node.imex_channel = has_imex_channel(roots.dev);
  node.amd_driver = is_folder(roots.sys + "/module/amdgpu");
  node.mlx5_version = read_attribute(roots.sys + "/module/mlx5_core/version");
  node.gpu_version =
      read_attribute(concat({roots.sys, "/module/", node.nvidia_driver ? "nvidia" : "amdgpu", "/version"}));
  node.peer_memory = read_peer_memory(roots.sys);
  return node;
}

bool has_devices(const Roots& roots) {
  std::string problem;
  return !list_folder(roots.sys + "/class/infiniband", 1, &problem).empty() || !problem.empty();
}

}  // namespace amldist::fabric
