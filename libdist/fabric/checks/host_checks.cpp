// The path between a card and the processor.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::string_view driver_name(const NetworkFunction& function) {
  return function.driver.empty() ? std::string_view("no driver") : std::string_view(function.driver);
}

}  // namespace

Check check_pci_functions(const NodeFacts& node) {
  if (!node.pci_problem.empty()) {
    return {"host.pci", Verdict::unknown, concat({"bus/pci/devices: ", printable(node.pci_problem)}),
            "allow this process to read sysfs"};
  }
  std::set<std::string_view> in_use;
  for (const DeviceFacts& device : node.devices) {
    const std::string_view path = device.pci.path;
    if (!path.empty()) in_use.insert(path.substr(path.rfind('/') + 1));
  }
  std::vector<Finding> findings;
  for (const NetworkFunction& each : node.network_functions) {
    if (in_use.contains(each.address) || is_given_away(each.driver)) continue;
    if (!each.infiniband && each.driver.empty()) continue;
    findings.push_back({Verdict::warn, concat({each.address, " (", driver_name(each), ") has no RDMA device"}),
                        each.driver.empty() ? "load the driver (mlx5_core, mlx5_ib), or see why it refuses the card"
                                            : "load mlx5_ib, and see the kernel's log for this address"});
  }
  if (findings.empty() && !node.network_functions.empty()) {
    findings.push_back(
        {Verdict::pass, concat({text::count(node.network_functions.size(), "function"), " with an RDMA device"}), ""});
  }
  return join_findings("host.pci", findings, "no function of a Mellanox or NVIDIA card on the PCI bus");
}

Check check_pci_errors(const NodeFacts& node, const CheckRequest& request) {
  constexpr std::uint64_t most_correctable = 1'000;
  std::vector<Finding> findings;
  std::set<const DeviceFacts*> seen;
  for (const JudgedPort& each : judged_ports(node, request)) {
    const PciFacts& pci = each.device->pci;
    if (!seen.insert(each.device).second || (!pci.aer_fatal && !pci.aer_nonfatal && !pci.aer_correctable)) continue;
    const std::uint64_t serious = pci.aer_fatal.value_or(0) + pci.aer_nonfatal.value_or(0);
    const std::uint64_t correctable = pci.aer_correctable.value_or(0);
    const std::string evidence = concat({each.device->name, " ", std::to_string(serious), " uncorrectable, ",
                                         std::to_string(correctable), " correctable errors"});
    const bool many = serious > 0 || correctable > most_correctable;
    findings.push_back({many ? Verdict::warn : Verdict::pass, evidence,
                        many ? "reseat the card; if the errors go on, replace it or try another slot" : ""});
  }
  return join_findings("host.aer", findings, "the kernel reports no PCIe errors (AER)");
}

namespace {

/// "16.0 GT/s PCIe": tenths of GT/s.
std::optional<std::uint64_t> link_speed(const Attribute& attribute) {
  if (!attribute.present()) return std::nullopt;
  const std::string_view word = std::string_view(attribute.text).substr(0, attribute.text.find(' '));
  const auto point = word.find('.');
  const auto whole = text::to_number(word.substr(0, point), 1024);
  const auto tenths = point == std::string_view::npos ? 0 : text::to_number(word.substr(point + 1), 9);
  return whole && tenths ? std::optional(*whole * 10 + *tenths) : std::nullopt;
}

std::optional<std::uint64_t> link_width(const Attribute& attribute) {
  return attribute.present() ? text::to_number(attribute.text, 64) : std::nullopt;
}

/// Whether a link is narrower or slower than both of its ends support.
bool is_lower(std::optional<std::uint64_t> now, std::optional<std::uint64_t> most, std::optional<std::uint64_t> card) {
  return now && most && card && *now != 0 && *card != 0 && *now < std::min(*most, *card);
}

}  // namespace

Check check_bridges(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  std::set<const DeviceFacts*> seen;
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (!seen.insert(each.device).second) continue;
    const PciFacts& card = each.device->pci;
    for (const BridgeFacts& bridge : card.bridges) {
      const auto width = link_width(bridge.current_width);
      if (!width || *width == 0 || !link_width(bridge.max_width)) continue;
      const bool narrow = is_lower(width, link_width(bridge.max_width), link_width(card.max_width));
      const bool slow =
          is_lower(link_speed(bridge.current_speed), link_speed(bridge.max_speed), link_speed(card.max_speed));
      const std::string speed = bridge.current_speed.present()
                                    ? concat({" at ", bridge.current_speed.shown(), " of ", bridge.max_speed.shown()})
                                    : "";
      findings.push_back(
          {narrow || slow ? Verdict::warn : Verdict::pass,
           concat({bridge.address, " above ", each.device->name, " has ", std::to_string(*width), " of ",
                   bridge.max_width.shown(), " lanes", speed}),
           narrow || slow ? "reseat the card or its riser: the slot's link has come up too narrow or slow" : ""});
    }
  }
  return join_findings("host.bridge", findings, "no bridge with a link above the devices");
}

Check check_access_control(const NodeFacts& node, const CheckRequest& request) {
  // Traffic that a port of a switch redirects goes up to the root complex; translated requests (ATS) need not.
  constexpr std::uint16_t redirect = 0x04 | 0x08;  // requests, completions
  constexpr std::uint16_t direct_translated = 0x40;
  std::vector<Finding> findings;
  std::set<std::string_view> seen;
  for (const JudgedPort& each : judged_ports(node, request)) {
    const PciFacts& card = each.device->pci;
    for (const BridgeFacts& bridge : card.bridges) {
      if (!bridge.acs || !seen.insert(bridge.address).second) continue;
      const bool redirects = (*bridge.acs & redirect) != 0 && (*bridge.acs & direct_translated) == 0;
      // The switch between the two has the ports that count, not the bridges above them both.
      const bool between = std::ranges::any_of(node.gpus, [&](const GpuFacts& gpu) {
        return share_bridge(gpu.path, card.path) &&
               gpu.path.find(concat({"/", bridge.address, "/"})) == std::string::npos;
      });
      const std::string name = concat({bridge.address, " above ", each.device->name});
      findings.push_back(
          redirects && between
              ? Finding{Verdict::warn,
                        concat({name, " sends what it and a GPU exchange through the root complex (ACS)"}),
                        "switch ACS off for this bridge, unless virtual machines share the node"}
              : Finding{Verdict::pass, concat({name, " is not on the path of a GPU"}), ""});
    }
  }
  return join_findings("host.acs", findings, "no bridge tells its access control (only root may read it)");
}

}  // namespace amldist::fabric
