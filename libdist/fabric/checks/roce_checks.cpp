// RoCE beside the fabric itself: lost packets, MTU, flow control and congestion.
#include <algorithm>
#include <array>
#include <set>

#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::vector<JudgedPort> roce_ports(const NodeFacts& node, const CheckRequest& request) {
  auto ports = judged_ports(node, request);
  std::erase_if(ports, [](const JudgedPort& each) { return each.port->layer() != LinkLayer::ethernet; });
  return ports;
}

/// Counters of lost or late packets in ports/N/hw_counters, and how many are usual in a week. A lossless network has
/// almost none. Without a baseline they are those since the driver was loaded, and count only where a port has many
/// times as many as each of its siblings, of which a tenth is enough.
struct RetransmissionLimit {
  std::string_view name;
  std::uint64_t most;
};
constexpr std::array<RetransmissionLimit, 25> retransmission_limits = {{
    {"out_of_sequence", 10'000},
    {"packet_seq_err", 10'000},
    {"implied_nak_seq_err", 10'000},
    {"duplicate_request", 10'000},
    {"local_ack_timeout_err", 1'000},
    {"rnr_nak_retry_err", 1'000},
    {"req_transport_retries_exceeded", 0},
    {"roce_adp_retrans", 10'000},
    {"out_of_buffer", 10'000},
    {"roce_slow_restart", 10'000},
    {"np_cnp_sent", 1'000'000},
    {"rp_cnp_handled", 1'000'000},
    {"np_ecn_marked_roce_packets", 1'000'000},
    {"to_retransmits", 10'000},  // bnxt_re
    {"seq_err_naks_rcvd", 10'000},
    {"max_retry_exceeded", 0},
    {"rnr_naks_rcvd", 1'000},
    {"oos_drop_count", 10'000},
    {"rx_roce_discards", 10'000},
    {"req_rx_pkt_seq_err", 10'000},  // ionic
    {"req_tx_retry_excd_err", 0},
    {"tx_rdma_ack_timeout", 1'000},
    {"out_of_seq_request", 10'000},  // rxe
    {"rcvd_seq_err", 10'000},
    {"retry_exceeded_err", 0},
}};
constexpr std::uint64_t times_siblings = 10;

/// The most that any other port has of a counter; nullopt: no other port tells it.
std::optional<std::uint64_t> most_of_siblings(const std::vector<JudgedPort>& ports, const JudgedPort& own,
                                              std::string_view name) {
  std::optional<std::uint64_t> most;
  for (const JudgedPort& each : ports) {
    const auto value = each.port != own.port ? counter_value(*each.port, name) : std::nullopt;
    if (value) most = std::max(most.value_or(0), *value);
  }
  return most;
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
  const auto ports = roce_ports(node, request);
  std::vector<Finding> findings;
  std::size_t judged = 0;
  const auto add = [&findings](const JudgedPort& each, std::string_view name, const std::string& how_many) {
    findings.push_back(
        {Verdict::warn, concat({each.name().to_string(), " ", name, " ", how_many}),
         "packets are lost or delayed: check priority flow control and ECN on this port and its switch"});
  };
  for (const JudgedPort& each : ports) {
    for (const RetransmissionLimit& limit : retransmission_limits) {
      const auto value = counter_value(*each.port, limit.name);
      const auto others = most_of_siblings(ports, each, limit.name);
      if (!value || (!history.baseline && !others)) continue;
      ++judged;
      if (others && *value > limit.most / 10 && *value / times_siblings >= *others)
        add(each, limit.name,
            concat({std::to_string(*value), ", the other ports have ", std::to_string(*others), " at most"}));
      if (!history.baseline) continue;
      const Increase increase =
          history.baseline->increase(*each.device, *each.port, limit.name, history.now, history_window);
      if (increase.since != 0 && increase.added > limit.most)
        add(each, limit.name, concat({"+", std::to_string(increase.added)}));
    }
  }
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
