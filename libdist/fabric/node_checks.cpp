#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/text.hpp"
#include "fabric/checks.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::string names_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 16;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    out += concat({i == 0 ? "" : " ", printable(names[i])});
  if (names.size() > most) out += " ...";
  return out;
}

bool has_layer(const DeviceFacts& device, LinkLayer layer) {
  return std::ranges::any_of(
      device.ports, [layer](const PortFacts& port) { return port.link_layer.present() && port.layer() == layer; });
}

/// Devices with at least one port of the layer.
std::vector<std::string> devices_with(const NodeFacts& node, LinkLayer layer) {
  std::vector<std::string> names;
  for (const DeviceFacts& device : node.devices) {
    if (has_layer(device, layer)) names.push_back(device.name);
  }
  return names;
}

constexpr std::string_view no_device_remedy =
    "load the driver (mlx5_ib), choose nodes with SR-IOV InfiniBand (NC24r and H16r have none), or use rdma=off";

std::string_view text_or(const Attribute& attribute, std::string_view otherwise) {
  return attribute.present() ? std::string_view(attribute.text) : otherwise;
}

/// PCI ids of Mellanox's virtual functions, from ConnectX-3 to ConnectX-7.
bool is_virtual_id(std::string_view id) {
  constexpr std::array<std::string_view, 8> ids = {"0x1004", "0x1012", "0x1014", "0x1016",
                                                   "0x1018", "0x101a", "0x101c", "0x101e"};
  return std::ranges::find(ids, id) != ids.end();
}

/// "16.0 GT/s PCIe" and "16.0 GT/s" are the same speed.
std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

bool link_differs(const Attribute& current, const Attribute& most) {
  if (!current.present() || !most.present()) return false;
  const std::string_view now = first_word(current.text);
  const std::string_view best = first_word(most.text);
  // Virtual functions report no link of their own: "Unknown", width 0.
  const bool unknown = now == "Unknown" || best == "Unknown" || now == "0" || best == "0";
  return !unknown && now != best;
}

/// Number of leading components that two resolved PCI paths share.
std::size_t common_depth(std::string_view a, std::string_view b) {
  const auto left = text::split(a, '/');
  const auto right = text::split(b, '/');
  std::size_t depth = 0;
  while (depth < left.size() && depth < right.size() && left[depth] == right[depth]) ++depth;
  return depth;
}

/// Whether both are below the same PCI bridge under the root complex: .../pci0000:00/BRIDGE/... in both.
bool share_switch(const std::string& a, const std::string& b) {
  const std::size_t depth = common_depth(a, b);
  const auto pieces = text::split(a, '/');
  std::size_t root = pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].starts_with("pci")) root = i;
  }
  return depth > root + 1;
}

std::vector<const DeviceFacts*> judged_devices(const NodeFacts& node, const Question& question) {
  std::vector<const DeviceFacts*> devices;
  for (const JudgedPort& each : judged_ports(node, question)) {
    if (devices.empty() || devices.back() != each.device) devices.push_back(each.device);
  }
  return devices;
}

/// Messages of the kernel log that indicate a problem, each with its remedy.
struct LogPattern {
  std::string_view piece;
  std::string_view remedy;
};
constexpr std::array<LogPattern, 5> log_patterns = {{
    {"insufficient power on the PCIe slot", "give the slot more power, or move the card"},
    {"High temperature", "check the cooling of card and transceiver"},
    {"Port module event: error", "reseat or replace the transceiver"},
    {"ACCESS_REG", "restart the firmware (mlxfwreset) or the node"},
    {"limited by", "reseat the card: its PCIe link is narrower or slower than it could be"},
}};

bool concerns_fabric(std::string_view line) {
  constexpr std::array<std::string_view, 4> drivers = {"mlx5", "mlx4", "infiniband", "hfi1"};
  return std::ranges::any_of(drivers, [line](std::string_view each) { return line.find(each) != line.npos; });
}

}  // namespace

Check check_policy(const NodeFacts& node, const Question& question) {
  std::string evidence = concat({to_string(question.policy), " (", question.policy_source, ")"});
  if (question.policy == RdmaPolicy::off) return {"ib.policy", Verdict::skip, evidence, ""};
  if (!question.sku) return {"ib.policy", Verdict::pass, evidence, ""};
  const Sku& sku = *question.sku;
  evidence += concat({"; ", printable(sku.name), " (", printable(sku.source), ")"});
  if (sku.has_verbs()) return {"ib.policy", Verdict::pass, evidence, ""};
  evidence += sku.fabric == Sku::Fabric::none ? " has no InfiniBand" : " has RDMA without InfiniBand verbs (no SR-IOV)";
  if (!node.devices.empty()) evidence += ", but this node has devices";
  return {"ib.policy", Verdict::warn, evidence,
          "use a size with an 'r' in its name (such as Standard_ND96isr_H100_v5), or rdma=off"};
}

Check check_sysfs(const NodeFacts& node, const Question& question) {
  const std::string folder = concat({node.roots.sys, "/class/infiniband"});
  if (!node.class_problem.empty()) {
    return {"ib.sysfs", Verdict::fail, concat({printable(folder), ": ", printable(node.class_problem)}),
            "allow this process to read sysfs"};
  }
  std::vector<std::string> names;
  std::vector<Finding> findings;
  for (const DeviceFacts& device : node.devices) {
    names.push_back(device.name);
    if (device.ports_problem.empty()) continue;
    findings.push_back({Verdict::fail, concat({device.name, " has no readable ports: ", device.ports_problem}),
                        "reload the driver, or check whether the device was just removed"});
  }
  if (!findings.empty()) return join_findings("ib.sysfs", findings, "");
  if (!names.empty()) {
    return {"ib.sysfs", Verdict::pass, concat({text::count(names.size(), "device"), ": ", names_of(names)}), ""};
  }
  const std::string evidence =
      concat({"no device in ", printable(folder), node.has_class ? "" : " (the folder does not exist)"});
  const Verdict verdict = question.requires_fabric() ? Verdict::fail : Verdict::skip;
  return {"ib.sysfs", verdict, evidence, std::string(no_device_remedy)};
}

Check check_count(const NodeFacts& node, const Question& question) {
  const auto infiniband = devices_with(node, LinkLayer::infiniband);
  const auto ethernet = devices_with(node, LinkLayer::ethernet);
  const bool roce_expected = question.sku && question.sku->fabric == Sku::Fabric::roce;
  const auto& counted = roce_expected ? ethernet : infiniband;
  const std::string_view layer = roce_expected ? "Ethernet (RoCE)" : "InfiniBand";
  std::string evidence = concat({text::count(counted.size(), "device"), " with link layer ", layer});
  if (!counted.empty()) evidence += concat({": ", names_of(counted)});
  if (question.sku && question.sku->has_verbs()) {
    const std::uint32_t expected = question.sku->devices.value_or(1);
    evidence += concat({"; ", printable(question.sku->name), " has ", question.sku->devices ? "" : "at least ",
                        std::to_string(expected)});
    if (counted.size() >= expected) return {"ib.count", Verdict::pass, evidence, ""};
    return {"ib.count", Verdict::fail, evidence,
            "a card is lost or in the wrong mode: see lspci and the kernel's log, replace the node"};
  }
  if (node.devices.empty()) return {"ib.count", Verdict::skip, "no device", ""};
  if (!infiniband.empty()) return {"ib.count", Verdict::pass, evidence, ""};
  const bool has_roce =
      std::ranges::any_of(ethernet, [](const auto& name) { return !is_accelerated_networking(name); });
  if (has_roce) return {"ib.count", Verdict::pass, concat({evidence, "; RoCE: ", names_of(ethernet)}), ""};
  if (!ethernet.empty()) evidence += concat({"; Accelerated Networking only: ", names_of(ethernet)});
  const Verdict verdict = question.requires_fabric() ? Verdict::fail : Verdict::skip;
  return {"ib.count", verdict, evidence, std::string(no_device_remedy)};
}

Check check_link_layer(const NodeFacts& node, const Question& question) {
  const bool infiniband_expected = question.sku && question.sku->fabric == Sku::Fabric::infiniband;
  const std::size_t expected = infiniband_expected ? question.sku->devices.value_or(1) : 0;
  const bool missing = devices_with(node, LinkLayer::infiniband).size() < expected;
  std::vector<Finding> findings;
  for (const DeviceFacts& device : node.devices) {
    for (const PortFacts& port : device.ports) {
      const std::string name = PortName{device.name, port.number}.to_string();
      const std::string evidence = concat({name, " ", port.link_layer.shown()});
      const bool ethernet = port.layer() == LinkLayer::ethernet;
      if (!port.link_layer.present()) {
        findings.push_back(
            {Verdict::fail, concat({name, " link_layer ", port.link_layer.shown()}), "reload the driver"});
      } else if (port.layer() == LinkLayer::other) {
        findings.push_back({Verdict::fail, evidence,
                            "NCCL and UCX use only InfiniBand and Ethernet (EFA: the libfabric plugin): use rdma=off"});
      } else if (missing && ethernet && !is_accelerated_networking(device.name)) {
        findings.push_back({Verdict::fail, concat({evidence, ", but InfiniBand is expected"}),
                            "set the port to InfiniBand: mlxconfig set LINK_TYPE_P1=1"});
      } else {
        findings.push_back({Verdict::pass, evidence, ""});
      }
    }
  }
  return join_findings("ib.linklayer", findings, "no port");
}

Check check_firmware(const NodeFacts& node, const Question& question) {
  std::map<std::string, std::set<std::string>> versions_of_board;
  std::set<std::string> seen;
  for (const DeviceFacts* device : judged_devices(node, question)) {
    if (!device->fw_ver.present()) continue;
    versions_of_board[std::string(text_or(device->board_id, "unknown board"))].insert(device->fw_ver.text);
    seen.insert(device->fw_ver.text);
  }
  std::vector<Finding> findings;
  for (const auto& [board, versions] : versions_of_board) {
    const std::vector<std::string> list(versions.begin(), versions.end());
    const std::string evidence = concat({printable(board), ": ", names_of(list)});
    if (versions.size() > 1)
      findings.push_back({Verdict::warn, evidence, "install the same firmware on all cards of this model"});
    else findings.push_back({Verdict::pass, evidence, ""});
  }
  if (!findings.empty() && node.mlx5_version.present()) {
    findings.push_back({Verdict::pass, concat({"driver ", printable(node.mlx5_version.text)}), ""});
  }
  return join_findings("ib.fw", findings, "no firmware version is available");
}

Check check_virtual_functions(const NodeFacts& node) {
  std::vector<std::string> virtual_ones;
  bool known = false;
  for (const DeviceFacts& device : node.devices) {
    known = known || device.pci.device.present() || device.pci.has_physfn;
    if (device.pci.has_physfn || is_virtual_id(device.pci.device.text)) virtual_ones.push_back(device.name);
  }
  if (!known) return {"ib.vf", Verdict::skip, "no PCI id is available", ""};
  if (virtual_ones.empty()) return {"ib.vf", Verdict::pass, "physical functions", ""};
  return {"ib.vf", Verdict::pass,
          concat({text::count(virtual_ones.size(), "virtual function"), ": ", names_of(virtual_ones)}), ""};
}

Check check_pcie(const NodeFacts& node, const Question& question) {
  std::vector<Finding> findings;
  for (const DeviceFacts* device : judged_devices(node, question)) {
    const PciFacts& pci = device->pci;
    const bool given = (pci.current_speed.present() && pci.max_speed.present()) ||
                       (pci.current_width.present() && pci.max_width.present());
    if (!given) continue;
    const std::string evidence =
        concat({device->name, " ", text_or(pci.current_speed, "?"), " x", text_or(pci.current_width, "?"), " of ",
                text_or(pci.max_speed, "?"), " x", text_or(pci.max_width, "?")});
    const bool slow = link_differs(pci.current_speed, pci.max_speed) || link_differs(pci.current_width, pci.max_width);
    if (slow) findings.push_back({Verdict::warn, evidence, "reseat the card, or check the slot's generation"});
    else findings.push_back({Verdict::pass, evidence, ""});
  }
  return join_findings("ib.pcie", findings, "no PCIe link is available");
}

Check check_affinity(const NodeFacts& node, const Question& question) {
  const auto devices = judged_devices(node, question);
  std::set<std::string> gpu_nodes;
  for (const GpuFacts& gpu : node.gpus) gpu_nodes.insert(gpu.numa_node.text);
  if (!devices.empty() && devices.size() < gpu_nodes.size()) {
    return {"ib.affinity", Verdict::pass, "fewer devices than NUMA nodes with GPUs: some GPUs have none nearby", ""};
  }
  std::vector<Finding> findings;
  for (const GpuFacts& gpu : node.gpus) {
    bool unknown = false;
    bool near = false;
    for (const DeviceFacts* device : devices) {
      const bool switched = share_switch(gpu.path, device->pci.path);
      const bool known = gpu.numa_node.present() && device->pci.numa_node.present() && gpu.numa_node.text != "-1" &&
                         device->pci.numa_node.text != "-1";
      near = near || switched || (known && gpu.numa_node.text == device->pci.numa_node.text);
      unknown = unknown || (!switched && !known);
    }
    if (near) {
      findings.push_back(
          {Verdict::pass, concat({"GPU ", gpu.address, " has a device on its switch or NUMA node"}), ""});
    } else if (!devices.empty() && !unknown) {
      findings.push_back({Verdict::warn,
                          concat({"GPU ", gpu.address, " (NUMA node ", text_or(gpu.numa_node, "?"),
                                  ") has no device on its PCIe switch or NUMA node"}),
                          "give NCCL the machine's topology file (NCCL_TOPO_FILE)"});
    }
  }
  return join_findings("ib.affinity", findings, node.gpus.empty() ? "no GPU" : "the NUMA nodes are unknown (-1)");
}

Check check_kernel_log(const std::optional<std::vector<std::string>>& lines, std::string_view reason) {
  if (!lines) return {"ib.kmsg", Verdict::skip, concat({"kernel log: ", reason}), ""};
  std::vector<Finding> findings;
  for (const std::string& line : *lines) {
    if (!concerns_fabric(line)) continue;
    for (const LogPattern& pattern : log_patterns) {
      if (line.find(pattern.piece) == std::string::npos) continue;
      findings.push_back({Verdict::warn, printable(line, 160), std::string(pattern.remedy)});
      break;
    }
  }
  if (findings.empty()) findings.push_back({Verdict::pass, "no message about cards or links since boot", ""});
  return join_findings("ib.kmsg", findings, "");
}

}  // namespace amldist::fabric
