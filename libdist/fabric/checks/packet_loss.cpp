#include "fabric/checks/packet_loss.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

/// Counters of lost or late packets in ports/N/hw_counters, and how many are usual in a week. A lossless network has
/// almost none. Without a baseline they are those since the driver was loaded, and count only where a port has many
/// times as many as its siblings, of which a tenth is enough.
struct LossLimit {
  std::string_view name;
  std::uint64_t most;
  bool is_failure = false;  ///< of a request that timed out or was given up, and not only of the order of packets
};
constexpr std::array<LossLimit, 30> loss_limits = {{
    {"out_of_sequence", 10'000},
    {"packet_seq_err", 10'000},
    {"implied_nak_seq_err", 10'000},
    {"duplicate_request", 10'000},
    {"local_ack_timeout_err", 1'000, true},
    {"rnr_nak_retry_err", 1'000},
    {"req_transport_retries_exceeded", 0, true},
    {"roce_adp_retrans", 10'000},
    {"out_of_buffer", 10'000},
    {"roce_slow_restart", 10'000},
    {"np_cnp_sent", 1'000'000},
    {"rp_cnp_handled", 1'000'000},
    {"np_ecn_marked_roce_packets", 1'000'000},
    {"to_retransmits", 10'000},  // bnxt_re
    {"seq_err_naks_rcvd", 10'000},
    {"max_retry_exceeded", 0, true},
    {"rnr_naks_rcvd", 1'000},
    {"oos_drop_count", 10'000},
    {"rx_roce_discards", 10'000},
    {"req_rx_pkt_seq_err", 10'000},  // ionic
    {"req_tx_retry_excd_err", 0, true},
    {"tx_rdma_ack_timeout", 1'000, true},
    {"out_of_seq_request", 10'000},  // rxe
    {"rcvd_seq_err", 10'000},
    {"retry_exceeded_err", 0, true},
    {"tcpRetransSegs", 10'000},         // irdma
    {"retrans_timeout_events", 1'000},  // efa
    {"unresponsive_remote_events", 100},
    {"impaired_remote_conn_events", 1'000},
    {"rx_drops", 10'000},
}};
constexpr std::uint64_t times_siblings = 10;

/// Whether a port has many times as many as three quarters of the other ports; `usual`: the most of those.
bool stands_out(std::uint64_t value, std::vector<std::uint64_t> others, std::uint64_t& usual) {
  if (others.empty()) return false;
  std::ranges::sort(others);
  usual = others[others.size() - 1 - others.size() / 4];
  return value / times_siblings >= usual;
}

std::vector<std::uint64_t> others_than(const std::vector<JudgedPort>& ports, const JudgedPort& own,
                                       std::string_view name) {
  std::vector<std::uint64_t> out;
  for (const JudgedPort& each : ports) {
    const auto value = each.port != own.port ? counter_value(*each.port, name) : std::nullopt;
    if (value) out.push_back(*value);
  }
  return out;
}

}  // namespace

PacketLoss find_packet_loss(const std::vector<JudgedPort>& ports, const CounterHistory& history, bool is_lossless) {
  PacketLoss out;
  const auto add = [&out](const JudgedPort& each, std::string_view name, const std::string& how_many,
                          std::string_view remedy) {
    out.findings.push_back({Verdict::warn, concat({each.name().to_string(), " ", name, " ", how_many}),
                            concat({"packets are lost or delayed: ", remedy})});
  };
  const std::string_view remedy = is_lossless ? "check the cable, and the route to the nodes that it talks to"
                                              : "check priority flow control and ECN on this port and its switch";
  for (const JudgedPort& each : ports) {
    for (const LossLimit& limit : loss_limits) {
      const auto value = counter_value(*each.port, limit.name);
      const auto others = others_than(ports, each, limit.name);
      if (!value || (!history.baseline && others.empty())) continue;
      ++out.judged;
      std::uint64_t usual = 0;
      if (*value > limit.most / 10 && stands_out(*value, others, usual))
        add(each, limit.name,
            concat({std::to_string(*value), ", the other ports have ", std::to_string(usual), " at most"}), remedy);
      if (!history.baseline || (is_lossless && !limit.is_failure)) continue;
      const Increase increase =
          history.baseline->increase(*each.device, *each.port, limit.name, history.now, history_window);
      if (increase.since != 0 && increase.added > limit.most)
        add(each, limit.name, concat({"+", std::to_string(increase.added)}), remedy);
    }
  }
  return out;
}

}  // namespace amldist::fabric
