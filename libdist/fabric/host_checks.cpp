// Checks beside InfiniBand itself: RoCE's congestion and retransmission, and what lies between a card and the
// processor.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/text.hpp"
#include "fabric/checks.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::vector<JudgedPort> roce_ports(const NodeFacts& node, const Question& question) {
  auto ports = judged_ports(node, question);
  std::erase_if(ports, [](const JudgedPort& each) { return each.port->layer() != LinkLayer::ethernet; });
  return ports;
}

/// Counters of lost or late packets in ports/N/hw_counters (mlx5, bnxt_re, irdma), and how many in a week are usual. On
/// a lossless network there are almost none; they mean little without a baseline.
struct RetransmissionLimit {
  std::string_view name;
  std::uint64_t most;
};
constexpr std::array<RetransmissionLimit, 5> retransmission_limits = {{
    {"out_of_sequence", 10'000},
    {"packet_seq_err", 10'000},
    {"local_ack_timeout_err", 1'000},
    {"rnr_nak_retry_err", 1'000},
    {"req_transport_retries_exceeded", 0},
}};

/// "eth0 1500, eth1 9000"; empty if all are alike.
std::string differing_mtus(const NodeFacts& node, const std::vector<JudgedPort>& ports, std::set<std::string>& seen) {
  std::string out;
  for (const JudgedPort& each : ports) {
    for (const std::string& name : each.device->netdevs) {
      const auto found = node.netdevs.find(name);
      if (found == node.netdevs.end() || !found->second.mtu.present()) continue;
      seen.insert(found->second.mtu.text);
      out += concat({out.empty() ? "" : ", ", printable(name, 32), " ", printable(found->second.mtu.text, 8)});
    }
  }
  return seen.size() > 1 ? out : "";
}

std::string_view driver_name(const NetworkFunction& function) {
  return function.driver.empty() ? std::string_view("no driver") : std::string_view(function.driver);
}

}  // namespace

Check check_retransmissions(const NodeFacts& node, const Question& question, const CounterHistory& history) {
  if (!history.baseline) return {"roce.counters", Verdict::skip, "no baseline to compare with", ""};
  std::vector<Finding> findings;
  std::size_t judged = 0;
  for (const JudgedPort& each : roce_ports(node, question)) {
    for (const RetransmissionLimit& limit : retransmission_limits) {
      if (!counter_value(*each.port, limit.name)) continue;
      ++judged;
      const Increase increase =
          history.baseline->increase(*each.device, *each.port, limit.name, history.now, history_window);
      if (increase.since == 0 || increase.added <= limit.most) continue;
      findings.push_back({Verdict::warn,
                          concat({each.name().to_string(), " ", limit.name, " +", std::to_string(increase.added)}),
                          "packets are lost: check priority flow control and ECN on this port and its switch"});
    }
  }
  if (findings.empty() && judged > 0) {
    findings.push_back({Verdict::pass, concat({text::count(judged, "counter"), " within limits"}), ""});
  }
  return join_findings("roce.counters", findings, "no RoCE port with such counters");
}

Check check_mtu(const NodeFacts& node, const Question& question) {
  const auto ports = roce_ports(node, question);
  std::set<std::string> seen;
  const std::string differing = differing_mtus(node, ports, seen);
  if (seen.empty()) return {"roce.mtu", Verdict::skip, ports.empty() ? "no RoCE port" : "no MTU is available", ""};
  if (differing.empty()) return {"roce.mtu", Verdict::pass, concat({"MTU ", printable(*seen.begin(), 8)}), ""};
  return {"roce.mtu", Verdict::warn, differing, "give all interfaces of the fabric the same MTU"};
}

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
    // Given to a virtual machine or to user-space drivers: no business of ours.
    const bool given_away = each.driver == "vfio-pci" || each.driver == "uio_pci_generic" || each.driver == "igb_uio";
    if (in_use.contains(each.address) || given_away) continue;
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

Check check_pci_errors(const NodeFacts& node, const Question& question) {
  constexpr std::uint64_t most_correctable = 1'000;
  std::vector<Finding> findings;
  std::set<const DeviceFacts*> seen;
  for (const JudgedPort& each : judged_ports(node, question)) {
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

Check check_bridges(const NodeFacts& node, const Question& question) {
  std::vector<Finding> findings;
  std::set<const DeviceFacts*> seen;
  for (const JudgedPort& each : judged_ports(node, question)) {
    if (!seen.insert(each.device).second) continue;
    for (const BridgeFacts& bridge : each.device->pci.bridges) {
      const auto now = bridge.current_width.present() ? text::to_number(bridge.current_width.text, 64) : std::nullopt;
      const auto card =
          each.device->pci.max_width.present() ? text::to_number(each.device->pci.max_width.text, 64) : std::nullopt;
      const auto most = bridge.max_width.present() ? text::to_number(bridge.max_width.text, 64) : std::nullopt;
      if (!now || !most || !card || *now == 0 || *card == 0) continue;
      const bool narrow = *now < std::min(*most, *card);
      findings.push_back({narrow ? Verdict::warn : Verdict::pass,
                          concat({bridge.address, " above ", each.device->name, " has ", std::to_string(*now), " of ",
                                  std::to_string(*most), " lanes"}),
                          narrow ? "reseat the card or its riser: the slot's link has come up narrow" : ""});
    }
  }
  return join_findings("host.bridge", findings, "no bridge with a link above the devices");
}

}  // namespace amldist::fabric
