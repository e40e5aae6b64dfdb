#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"

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

constexpr std::string_view no_device_remedy =
    "load the driver (mlx5_ib), choose nodes with SR-IOV InfiniBand (NC24r and H16r have none), or use rdma=off";

std::string_view text_or(const Attribute& attribute, std::string_view otherwise) {
  return attribute.present() ? std::string_view(attribute.text) : otherwise;
}

/// "16.0 GT/s PCIe" and "16.0 GT/s" are the same speed.
std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

/// A speed or a width of a PCIe link.
struct LinkValue {
  enum class State { number, unknown, unreadable } state = State::unknown;
  std::string_view text;  ///< "16.0", "8"
};

/// "16.0 GT/s PCIe", "16", or "Unknown" and 0 for a virtual function. A missing file gives no value either.
LinkValue link_value(const Attribute& attribute) {
  if (attribute.absent()) return {};
  if (!attribute.present()) return {LinkValue::State::unreadable, {}};
  const std::string_view word = first_word(attribute.text);
  if (word == "Unknown" || word == "0") return {};
  const std::string_view whole = word.substr(0, word.find('.'));
  const std::string_view rest = whole.size() < word.size() ? word.substr(whole.size() + 1) : "0";
  const bool number = text::to_number(whole, 1024) && text::to_number(rest, 1'000'000);
  return number ? LinkValue{LinkValue::State::number, word} : LinkValue{LinkValue::State::unreadable, {}};
}

enum class LinkComparison { equal, differs, nothing_said, unreadable };

LinkComparison compare_link(const Attribute& current, const Attribute& most) {
  const LinkValue now = link_value(current);
  const LinkValue best = link_value(most);
  using enum LinkValue::State;
  if (now.state == unreadable || best.state == unreadable) return LinkComparison::unreadable;
  if (now.state == unknown || best.state == unknown) return LinkComparison::nothing_said;
  return now.text == best.text ? LinkComparison::equal : LinkComparison::differs;
}

std::vector<const DeviceFacts*> judged_devices(const NodeFacts& node, const CheckRequest& request) {
  std::vector<const DeviceFacts*> devices;
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (devices.empty() || devices.back() != each.device) devices.push_back(each.device);
  }
  return devices;
}

/// Messages of the kernel log that indicate a problem, each with its verdict and remedy. Texts: mlx5_core's health.c,
/// cmd.c, events.c and fw_reset.c, and mlx4_core.
struct LogPattern {
  std::string_view piece;
  Verdict verdict;
  std::string_view remedy;
};
constexpr std::string_view broken_firmware = "drain the node and reset the card (mlxfwreset), or replace it";
constexpr std::array<LogPattern, 17> log_patterns = {{
    {"Fatal error", Verdict::fail, broken_firmware},
    {"firmware internal error", Verdict::fail, broken_firmware},
    {"Firmware internal error", Verdict::fail, broken_firmware},
    {"health compromised", Verdict::fail, broken_firmware},
    {"enter error state", Verdict::fail, broken_firmware},
    {"unrecoverable", Verdict::fail, broken_firmware},
    {"assert_exit_ptr", Verdict::fail, broken_firmware},
    {"internal error detected", Verdict::fail, broken_firmware},
    {"device disappeared", Verdict::fail, "the card left the PCIe bus: reseat or replace it"},
    {"timeout. Will cause a leak", Verdict::fail, broken_firmware},
    {"insufficient power on the PCIe slot", Verdict::warn, "give the slot more power, or move the card"},
    {"High temperature", Verdict::warn, "check the cooling of card and transceiver"},
    {"Port module event: error", Verdict::warn, "reseat or replace the transceiver"},
    {"ACCESS_REG", Verdict::warn, "restart the firmware (mlxfwreset) or the node"},
    {"limited by", Verdict::warn, "reseat the card: its PCIe link is narrower or slower than it could be"},
    {"PCIe Bus Error", Verdict::warn, "reseat the card, and look at the slot's AER counters"},
    {"Correctable error", Verdict::warn, "reseat the card, and look at the slot's AER counters"},
}};

/// After this the driver works again, so that earlier messages are only a warning.
bool says_recovered(std::string_view line) {
  constexpr std::array<std::string_view, 3> pieces = {"health recovery succeeded", "recovery flow succeeded",
                                                      "health recovery flow"};
  return std::ranges::any_of(pieces,
                             [line](std::string_view each) { return line.find(each) != std::string_view::npos; });
}

/// "0000:17:00.0" of a line, by which a recovery is matched with the fault that it heals; may be empty.
std::string_view address_in(std::string_view line) {
  constexpr std::size_t length = 12;
  for (std::size_t at = line.find(':'); at != std::string_view::npos; at = line.find(':', at + 1)) {
    if (at < 4 || at - 4 + length > line.size()) continue;
    const std::string_view piece = line.substr(at - 4, length);
    if (piece[7] == ':' && piece[10] == '.') return piece;
  }
  return {};
}

bool concerns_fabric(std::string_view line) {
  constexpr std::array<std::string_view, 4> drivers = {"mlx5", "mlx4", "infiniband", "hfi1"};
  return std::ranges::any_of(drivers,
                             [line](std::string_view each) { return line.find(each) != std::string_view::npos; });
}

}  // namespace

Check check_policy(const NodeFacts& node, const CheckRequest& request) {
  std::string evidence = concat({to_string(request.policy), " (", request.policy_source, ")"});
  if (request.policy == launch::RdmaPolicy::off) return {"ib.policy", Verdict::skip, evidence, ""};
  if (!request.sku) return {"ib.policy", Verdict::pass, evidence, ""};
  const Sku& sku = *request.sku;
  evidence += concat({"; ", printable(sku.name), " (", printable(sku.source), ")"});
  if (sku.is_guessed && sku.has_verbs()) {
    return {"ib.policy", Verdict::unknown, evidence,
            sku.nearest.empty() ? "add the name to /etc/aml-dist/skus.conf"
                                : concat({"is ", printable(sku.nearest), " meant? Otherwise add the name to ",
                                          "/etc/aml-dist/skus.conf"})};
  }
  if (sku.has_verbs()) return {"ib.policy", Verdict::pass, evidence, ""};
  evidence += sku.fabric == Sku::Fabric::none ? " has no InfiniBand" : " has RDMA without InfiniBand verbs (no SR-IOV)";
  if (!node.devices.empty()) evidence += ", but this node has devices";
  return {"ib.policy", Verdict::warn, evidence,
          "use a size with an 'r' in its name (such as Standard_ND96isr_H100_v5), or rdma=off"};
}

Check check_sysfs(const NodeFacts& node, const CheckRequest& request) {
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
  const Verdict verdict = request.requires_fabric() ? Verdict::fail : Verdict::skip;
  return {"ib.sysfs", verdict, evidence, std::string(no_device_remedy)};
}

namespace {

std::string_view layer_name(Sku::Fabric fabric) {
  if (fabric == Sku::Fabric::efa) return "EFA";
  return fabric == Sku::Fabric::roce ? "Ethernet (RoCE)" : "InfiniBand";
}

/// Compares the SKU's expectation with what is there.
Check count_by_sku(const std::vector<std::string>& names, const Sku& sku) {
  const std::uint32_t expected = sku.devices.value_or(1);
  std::string evidence = concat({text::count(names.size(), "device"), " with link layer ", layer_name(sku.fabric)});
  if (!sku.hca.empty()) evidence += concat({" in hca=", printable(sku.hca, 60)});
  evidence += concat({"; ", printable(sku.name), " has ", sku.devices ? "" : "at least ", std::to_string(expected)});
  if (!names.empty()) evidence += concat({": ", names_of(names)});
  if (names.size() >= expected) return {"ib.count", Verdict::pass, evidence, ""};
  return {"ib.count", Verdict::fail, evidence,
          "a card is lost or in the wrong mode: see lspci and the kernel's log, replace the node"};
}

/// "mlx5_0 (Accelerated Networking), rdmap0s6 (EFA)": devices that are not part of the fabric.
std::string other_devices(const NodeFacts& node) {
  std::string out;
  for (const DeviceFacts& device : node.devices) {
    const DeviceRole role = role_of(node, device);
    if (role == DeviceRole::fabric) continue;
    const std::string_view what = role == DeviceRole::accelerator ? "Accelerated Networking"
                                  : role == DeviceRole::iwarp     ? "iWARP"
                                  : role == DeviceRole::no_verbs  ? "no verbs"
                                                                  : "EFA";
    out += concat({out.empty() ? "" : ", ", printable(device.name, 32), " (", what, ")"});
  }
  return out;
}

std::string unused_text(const std::vector<UnusedPort>& unused) {
  constexpr std::size_t most = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(unused.size(), most); ++i) {
    out += concat(
        {out.empty() ? "; not judged: " : ", ", printable(unused[i].name.to_string(), 40), " (", unused[i].why, ")"});
  }
  return unused.size() > most ? out + " ..." : out;
}

}  // namespace

Check check_count(const NodeFacts& node, const CheckRequest& request) {
  std::vector<std::string> names;
  for (const DeviceFacts* device : counted_devices(node, request)) names.push_back(device->name);
  const PortChoice choice = choose_ports(node, request);
  if (request.sku && request.sku->has_verbs()) {
    Check check = count_by_sku(names, *request.sku);
    check.evidence += unused_text(choice.unused);
    return check;
  }
  if (node.devices.empty()) return {"ib.count", Verdict::skip, "no device: see ib.sysfs", ""};
  if (!choice.judged.empty()) {
    const bool roce = choice.judged.front().port->layer() == LinkLayer::ethernet;
    return {"ib.count", Verdict::pass,
            concat({text::count(names.size(), "device"), " with link layer ", roce ? "Ethernet (RoCE)" : "InfiniBand",
                    ": ", names_of(names), unused_text(choice.unused)}),
            ""};
  }
  const std::string others = other_devices(node);
  const Verdict verdict = request.requires_fabric() ? Verdict::fail : Verdict::skip;
  return {"ib.count", verdict,
          concat({"no InfiniBand or RoCE device", others.empty() ? "" : concat({": ", others}),
                  unused_text(choice.unused)}),
          std::string(no_device_remedy)};
}

Check check_link_layer(const NodeFacts& node, const CheckRequest& request) {
  const bool infiniband_expected = request.expects(Sku::Fabric::infiniband);
  const std::size_t expected = infiniband_expected ? request.sku->devices.value_or(1) : 0;
  const bool missing = counted_devices(node, request).size() < expected;
  const bool nothing_else = choose_ports(node, request).judged.empty() && request.requires_fabric();
  std::vector<Finding> findings;
  for (const DeviceFacts& device : node.devices) {
    const DeviceRole role = role_of(node, device);
    for (const PortFacts& port : device.ports) {
      const std::string name = PortName{device.name, port.number}.to_string();
      const std::string evidence = concat({name, " ", port.link_layer.shown()});
      if (role == DeviceRole::no_verbs && !nothing_else) continue;
      const bool other = port.layer() == LinkLayer::other || role == DeviceRole::iwarp || role == DeviceRole::no_verbs;
      if (!port.link_layer.present()) {
        findings.push_back(
            {Verdict::fail, concat({name, " link_layer ", port.link_layer.shown()}), "reload the driver"});
      } else if (other && request.expects(Sku::Fabric::efa) && role == DeviceRole::efa) {
        findings.push_back({Verdict::pass, concat({evidence, " (EFA)"}), ""});
      } else if (other) {
        const bool needed = missing || nothing_else;
        findings.push_back(
            {needed ? Verdict::fail : Verdict::skip, concat({evidence, role == DeviceRole::iwarp ? " (iWARP)" : ""}),
             "NCCL and UCX use only InfiniBand and RoCE (EFA: name a SKU with fabric=efa): use rdma=off"});
      } else if (missing && port.layer() == LinkLayer::ethernet && role == DeviceRole::fabric) {
        findings.push_back({Verdict::fail, concat({evidence, ", but InfiniBand is expected"}),
                            "set the port to InfiniBand: mlxconfig set LINK_TYPE_P1=1"});
      } else {
        findings.push_back({Verdict::pass, evidence, ""});
      }
    }
  }
  return join_findings("ib.linklayer", findings, "no port");
}

Check check_firmware(const NodeFacts& node, const CheckRequest& request) {
  std::map<std::string, std::set<std::string>> versions_of_board;
  std::vector<Finding> unreadable;
  for (const DeviceFacts* device : judged_devices(node, request)) {
    const bool has_firmware = !device->pci.path.empty();  // soft-RoCE's file exists but is empty
    if (device->fw_ver.absent() || (!has_firmware && !device->fw_ver.present())) continue;
    if (!device->fw_ver.present()) {
      unreadable.push_back(
          {Verdict::unknown, concat({device->name, " fw_ver ", device->fw_ver.shown()}), "reload the driver"});
      continue;
    }
    versions_of_board[std::string(text_or(device->board_id, "unknown board"))].insert(device->fw_ver.text);
  }
  std::vector<Finding> findings = std::move(unreadable);
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
    if (is_virtual_function(device)) virtual_ones.push_back(device.name);
  }
  if (!known) return {"ib.vf", Verdict::skip, "no PCI id is available", ""};
  if (virtual_ones.empty()) return {"ib.vf", Verdict::pass, "physical functions", ""};
  return {"ib.vf", Verdict::pass,
          concat({text::count(virtual_ones.size(), "virtual function"), ": ", names_of(virtual_ones)}), ""};
}

Check check_pcie(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  for (const DeviceFacts* device : judged_devices(node, request)) {
    const PciFacts& pci = device->pci;
    const auto speed = compare_link(pci.current_speed, pci.max_speed);
    const auto width = compare_link(pci.current_width, pci.max_width);
    const std::string evidence =
        concat({device->name, " ", text_or(pci.current_speed, "?"), " x", text_or(pci.current_width, "?"), " of ",
                text_or(pci.max_speed, "?"), " x", text_or(pci.max_width, "?")});
    if (speed == LinkComparison::differs || width == LinkComparison::differs) {
      findings.push_back({Verdict::warn, evidence, "reseat the card, or check the slot's generation"});
    } else if (speed == LinkComparison::unreadable || width == LinkComparison::unreadable) {
      findings.push_back({Verdict::unknown, concat({evidence, " cannot be read"}), "reload the driver"});
    } else if (speed == LinkComparison::equal || width == LinkComparison::equal) {
      findings.push_back({Verdict::pass, evidence, ""});
    }
  }
  return join_findings("ib.pcie", findings, "no PCIe link is available");
}

Check check_affinity(const NodeFacts& node, const CheckRequest& request) {
  if (!node.pci_problem.empty()) {
    return {"ib.affinity", Verdict::unknown, concat({"bus/pci/devices: ", printable(node.pci_problem)}),
            "allow this process to read sysfs"};
  }
  const auto devices = judged_devices(node, request);
  std::set<std::string> gpu_nodes;
  for (const GpuFacts& gpu : node.gpus) gpu_nodes.insert(gpu.numa_node.text);
  if (!devices.empty() && devices.size() < gpu_nodes.size()) {
    return {"ib.affinity", Verdict::pass, "fewer devices than NUMA nodes with GPUs: some GPUs have no device nearby",
            ""};
  }
  std::vector<Finding> findings;
  for (const GpuFacts& gpu : node.gpus) {
    bool unknown = false;
    bool near = false;
    for (const DeviceFacts* device : devices) {
      const bool switched = share_bridge(gpu.path, device->pci.path);
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

Check check_kernel_log(const std::optional<std::vector<std::string>>& lines, const KernelLogProblem& problem) {
  if (!lines) {
    return {"ib.kmsg", problem.was_asked_for ? Verdict::unknown : Verdict::skip,
            concat({"kernel log: ", problem.reason}),
            problem.was_asked_for ? "correct --kernel-log, or allow this process to read it" : ""};
  }
  std::map<std::string, std::size_t, std::less<>> recovered;  // address: the last line that reports a recovery
  for (std::size_t i = 0; i < lines->size(); ++i) {
    if (says_recovered((*lines)[i])) recovered[std::string(address_in((*lines)[i]))] = i;
  }
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    const std::string& line = (*lines)[i];
    if (!concerns_fabric(line)) continue;
    const auto pattern = std::ranges::find_if(
        log_patterns, [&line](const LogPattern& each) { return line.find(each.piece) != std::string::npos; });
    if (pattern == log_patterns.end()) continue;
    const auto healed = recovered.find(address_in(line));
    const bool works_again = healed != recovered.end() && healed->second > i;
    findings.push_back({works_again ? Verdict::warn : pattern->verdict,
                        concat({printable(line, 160), works_again ? " (recovered since)" : ""}),
                        std::string(pattern->remedy)});
  }
  if (findings.empty()) findings.push_back({Verdict::pass, "no message about cards or links since boot", ""});
  return join_findings("ib.kmsg", findings, "");
}

}  // namespace amldist::fabric
