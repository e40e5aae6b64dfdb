// RoCE beside the fabric itself: lost packets, MTU, flow control and congestion.
#include <algorithm>
#include <array>
#include <set>

#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/checks/packet_loss.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::vector<JudgedPort> roce_ports(const NodeFacts& node, const CheckRequest& request) {
  auto ports = judged_ports(node, request);
  std::erase_if(ports, [](const JudgedPort& each) { return each.port->layer() != LinkLayer::ethernet; });
  return ports;
}

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

/// "3", "3+4", "none", "?".
std::string priorities_text(const std::optional<std::uint8_t>& priorities) {
  if (!priorities) return "?";
  std::string out;
  for (unsigned priority = 0; priority < 8; ++priority) {
    if ((*priorities >> priority & 1U) != 0) out += concat({out.empty() ? "" : "+", std::to_string(priority)});
  }
  return out.empty() ? "none" : out;
}

/// An interface of a RoCE port that reports its flow or congestion control.
struct QosFacts {
  std::string interface;
  const NetFacts* net = nullptr;

  [[nodiscard]] std::string text() const {
    return concat({"PFC ", priorities_text(net->flow_control), ", ECN ", priorities_text(net->notifies),
                   " (receiving) ", priorities_text(net->reacts), " (sending)"});
  }
  /// Nothing keeps the sender from sending too much, or tells it so.
  [[nodiscard]] bool is_lossy() const {
    return net->flow_control == std::uint8_t{0} && net->notifies == std::uint8_t{0} && net->reacts == std::uint8_t{0};
  }
};

std::vector<QosFacts> qos_of(const NodeFacts& node, const CheckRequest& request) {
  std::vector<QosFacts> out;
  for (const JudgedPort& each : roce_ports(node, request)) {
    for (const std::string& name : each.device->netdevs) {
      const auto found = node.netdevs.find(name);
      if (found == node.netdevs.end()) continue;
      const NetFacts& net = found->second;
      if (net.flow_control || net.notifies || net.reacts) out.push_back({name, &net});
    }
  }
  return out;
}

}  // namespace

Check check_retransmissions(const NodeFacts& node, const CheckRequest& request, const CounterHistory& history) {
  auto ports = judged_ports(node, request);
  std::erase_if(ports, [](const JudgedPort& each) { return each.port->layer() == LinkLayer::infiniband; });
  auto [findings, judged] = find_packet_loss(ports, history, false);
  if (findings.empty() && judged > 0)
    findings.push_back({Verdict::pass, concat({text::count(judged, "counter"), " within limits"}), ""});
  const std::string_view nothing =
      history.baseline ? "no RoCE port with such counters" : "no baseline and no other port to compare with";
  return join_findings("roce.counters", findings, nothing);
}

Check check_mtu(const NodeFacts& node, const CheckRequest& request) {
  const auto ports = roce_ports(node, request);
  std::set<std::string> seen;
  const std::string differing = differing_mtus(node, ports, seen);
  if (seen.empty()) return {"roce.mtu", Verdict::skip, ports.empty() ? "no RoCE port" : "no MTU is available", ""};
  if (differing.empty()) return {"roce.mtu", Verdict::pass, concat({"MTU ", printable(*seen.begin(), 8)}), ""};
  return {"roce.mtu", Verdict::warn, differing, "give all interfaces of the fabric the same MTU"};
}

std::string common_mtu(const NodeFacts& node, const CheckRequest& request) {
  std::set<std::string> seen;
  static_cast<void>(differing_mtus(node, roce_ports(node, request), seen));
  return seen.size() == 1 ? printable(*seen.begin(), 8) : "";
}

Check check_flow_control(const NodeFacts& node, const CheckRequest& request) {
  const auto all = qos_of(node, request);
  std::set<std::string> kinds;
  std::string differing;
  std::vector<Finding> findings;
  for (const QosFacts& each : all) {
    const std::string evidence = concat({printable(each.interface, 32), ": ", each.text()});
    if (kinds.insert(each.text()).second) differing += concat({differing.empty() ? "" : "; ", evidence});
    if (!each.is_lossy()) continue;
    findings.push_back({Verdict::warn, evidence, "switch on priority flow control, ECN or both, as on the switches"});
  }
  if (kinds.size() > 1) {
    findings.push_back({Verdict::warn, differing, "set all interfaces of the fabric alike (mlnx_qos, dcb)"});
  }
  if (findings.empty() && !all.empty()) findings.push_back({Verdict::pass, all.front().text(), ""});
  return join_findings("roce.qos", findings, "no RoCE port tells its flow control");
}

std::string common_flow_control(const NodeFacts& node, const CheckRequest& request) {
  std::set<std::string> kinds;
  for (const QosFacts& each : qos_of(node, request)) kinds.insert(each.text());
  return kinds.size() == 1 ? *kinds.begin() : "";
}

Check check_congestion(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  for (const JudgedPort& each : roce_ports(node, request)) {
    const auto marked = counter_value(*each.port, "np_ecn_marked_roce_packets");
    const auto sent = counter_value(*each.port, "np_cnp_sent");
    const auto ignored = counter_value(*each.port, "rp_cnp_ignored");
    if (!sent && !ignored) continue;
    const std::string name = each.name().to_string();
    if (marked.value_or(0) > 0 && sent == std::uint64_t{0}) {
      findings.push_back({Verdict::warn,
                          concat({name, " received ", std::to_string(*marked), " marked packets and told no sender"}),
                          "switch on congestion control for receiving (ecn/roce_np)"});
    } else if (ignored.value_or(0) > 0) {
      findings.push_back({Verdict::warn,
                          concat({name, " ignored ", std::to_string(*ignored), " congestion notifications"}),
                          "switch on congestion control for sending (ecn/roce_rp)"});
    } else {
      findings.push_back(
          {Verdict::pass, concat({name, " sent ", std::to_string(sent.value_or(0)), " notifications"}), ""});
    }
  }
  return join_findings("roce.cnp", findings, "no RoCE port with counters of congestion notifications");
}

}  // namespace amldist::fabric
