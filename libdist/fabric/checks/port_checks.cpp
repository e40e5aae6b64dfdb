#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/checks/packet_loss.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::string_view no_port = "no port to judge";

std::string number_text(double number) {
  const auto whole = static_cast<std::uint64_t>(number);
  const auto tenth = static_cast<std::uint64_t>(std::lround((number - static_cast<double>(whole)) * 10));
  return tenth == 0 ? std::to_string(whole) : concat({std::to_string(whole), ".", std::to_string(tenth)});
}

std::string_view remedy_for(PortState state, PhysicalState physical) {
  if (state == PortState::init || state == PortState::armed) {
    return "no subnet manager has configured the port: wait, or start one (opensm, or on the switch)";
  }
  if (physical == PhysicalState::polling)
    return "the other end of the cable does not respond: check cable, transceiver and switch port";
  if (physical == PhysicalState::disabled)
    return "the port is administratively down: ip link set up, ibportstate enable";
  if (physical == PhysicalState::training || physical == PhysicalState::recovery) {
    return "the link is training or recovering from errors: check the cable";
  }
  return "check cable and switch port, reload the driver";
}

constexpr std::string_view not_ours =
    "; if the port is not part of the fabric, name those that are: hca= in /etc/aml-dist/skus.conf, or NCCL_IB_HCA";

Finding judge_state(const JudgedPort& each) {
  const PortFacts& port = *each.port;
  const std::string evidence =
      concat({each.name().to_string(), " ", port.state.shown(), ", ", port.phys_state.shown()});
  const auto state = port.state.present() ? parse_state(port.state.text) : std::nullopt;
  const auto physical = port.phys_state.present() ? parse_physical_state(port.phys_state.text) : PhysicalState::unknown;
  if (!state) return {Verdict::fail, evidence, "the port's state cannot be read: reload the driver"};
  if (*state != PortState::active) return {Verdict::fail, evidence, std::string(remedy_for(*state, physical))};
  if (port.phys_state.absent()) return {Verdict::warn, evidence, "update the driver: it does not report phys_state"};
  if (physical == PhysicalState::link_up) return {Verdict::pass, evidence, ""};
  return {Verdict::fail, evidence, "the port reports active without a link: reload the driver"};
}

/// Ports are siblings, and should have equal rates, if their cards are of one model and their networks of one kind.
std::string sibling_key(const JudgedPort& each) {
  const std::string type = each.device->hca_type.present() ? each.device->hca_type.text : "";
  const std::string board = each.device->board_id.present() ? each.device->board_id.text : "";
  return concat({type, "/", board, "/", each.port->link_layer.text});
}

/// Whether the number of lanes is normal: 4, or from HDR on 2, because two lanes are also sold as a port.
bool width_is_usual(const Rate& rate) {
  constexpr std::array<std::string_view, 3> halved = {"HDR", "NDR", "XDR"};
  if (rate.lanes >= 4) return true;
  return rate.lanes == 2 && std::ranges::find(halved, rate.speed) != halved.end();
}

struct RateExpectation {
  std::optional<std::uint32_t> of_sku;
  double of_siblings = 0;
  Verdict severity = Verdict::fail;
};

Finding judge_rate(const JudgedPort& each, const RateExpectation& expected) {
  const std::string evidence = concat({each.name().to_string(), " ", each.port->rate.shown()});
  const auto rate = each.port->rate.present() ? parse_rate(each.port->rate.text) : std::nullopt;
  constexpr std::string_view degraded = "the link is degraded: reseat or replace the cable, check the switch port";
  if (!rate) return {Verdict::fail, evidence, "the port's rate cannot be read: reload the driver"};
  if (expected.of_sku) {
    if (rate->gbps >= *expected.of_sku) return {Verdict::pass, evidence, ""};
    return {expected.severity, concat({evidence, ", expected ", std::to_string(*expected.of_sku), " Gb/s"}),
            std::string(degraded)};
  }
  if (rate->gbps < expected.of_siblings) {
    return {expected.severity,
            concat({evidence, ", the other ports have ", number_text(expected.of_siblings), " Gb/s"}),
            concat({degraded, not_ours})};
  }
  if (each.port->layer() == LinkLayer::infiniband && !width_is_usual(*rate)) {
    return {expected.severity, concat({evidence, ", expected 4 lanes"}), std::string(degraded)};
  }
  return {Verdict::pass, evidence, ""};
}

std::vector<JudgedPort> infiniband_ports(const NodeFacts& node, const CheckRequest& request) {
  auto ports = judged_ports(node, request);
  std::erase_if(ports, [](const JudgedPort& each) { return each.port->layer() != LinkLayer::infiniband; });
  return ports;
}

Finding judge_lid(const JudgedPort& each) {
  const PortFacts& port = *each.port;
  const std::string evidence =
      concat({each.name().to_string(), " lid ", port.lid.shown(), ", sm_lid ", port.sm_lid.shown()});
  const auto lid = port.lid.present() ? parse_hex16(port.lid.text) : std::nullopt;
  const auto manager = port.sm_lid.present() ? parse_hex16(port.sm_lid.text) : std::nullopt;
  const auto is_unicast = [](const std::optional<std::uint16_t>& each) { return each && *each != 0 && *each < 0xc000; };
  const bool good = is_unicast(lid) && is_unicast(manager);
  if (good) return {Verdict::pass, evidence, ""};
  return {Verdict::fail, evidence, "no subnet manager has assigned a LID: start one, or check the link to it"};
}

constexpr std::uint16_t full_member = 0x8000;
constexpr std::uint16_t key_bits = 0x7fff;

std::string hex16(std::uint16_t value) { return "0x" + to_hex(value, 2); }

std::string keys_text(const PortFacts& port) {
  if (port.pkeys.empty()) return "none";
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(port.pkeys.size(), 4); ++i) {
    out += concat({i == 0 ? "" : " ", hex16(port.pkeys[i].value)});
  }
  return out;
}

const PkeyEntry* key_at(const PortFacts& port, std::int64_t index) {
  const auto found =
      std::ranges::find(port.pkeys, index, [](const PkeyEntry& each) { return std::int64_t{each.index}; });
  return found == port.pkeys.end() ? nullptr : &*found;
}

/// A key of no partition (0x8000) is no membership at all.
bool is_full(const PkeyEntry& entry) noexcept {
  return (entry.value & full_member) != 0 && (entry.value & key_bits) != 0;
}

/// Checks the index that NCCL uses: the user's, else 0.
Finding judge_nccl_pkey(const JudgedPort& each, const EnvironmentReader& environment) {
  const auto requested = nccl_parameter(environment, "NCCL_IB_PKEY");
  const std::int64_t index = requested.value_or(0);
  const PkeyEntry* const entry = key_at(*each.port, index);
  const std::string evidence = concat({each.name().to_string(), " P_Keys ", keys_text(*each.port)});
  if (entry != nullptr && is_full(*entry)) return {Verdict::pass, evidence, ""};
  const auto usable = std::ranges::find_if(each.port->pkeys, is_full);
  const std::string what =
      concat({evidence, "; index ", std::to_string(index), " (", requested ? "NCCL_IB_PKEY" : "NCCL's default",
              entry == nullptr                 ? ") is empty"
              : (entry->value & key_bits) == 0 ? ") is no partition"
                                               : ") is a limited member"});
  return {requested ? Verdict::fail : Verdict::warn, what,
          concat({"set NCCL_IB_PKEY=", std::to_string(usable->index), " and UCX_IB_PKEY=", hex16(usable->value)})};
}

/// UCX_IB_PKEY is a value. Its default 0xffff selects the first full member.
std::optional<Finding> judge_ucx_pkey(const JudgedPort& each, const EnvironmentReader& environment) {
  const auto requested = environment("UCX_IB_PKEY");
  if (!requested || requested->empty()) return std::nullopt;
  const auto decimal = text::to_number(*requested, 0xffff);
  const auto value = decimal ? std::optional(static_cast<std::uint16_t>(*decimal)) : parse_hex16(*requested);
  if (value && (*value & key_bits) == key_bits) return std::nullopt;
  const bool there = value && std::ranges::any_of(each.port->pkeys, [&](const PkeyEntry& entry) {
                       return (entry.value & key_bits) == (*value & key_bits);
                     });
  if (there) return std::nullopt;
  return Finding{Verdict::fail,
                 concat({each.name().to_string(), " has no P_Key ", printable(*requested, 20),
                         " (UCX_IB_PKEY); it has ", keys_text(*each.port)}),
                 "correct UCX_IB_PKEY: it is a value, not an index"};
}

Finding judge_pkey(const JudgedPort& each, const EnvironmentReader& environment) {
  const PortFacts& port = *each.port;
  const std::string name = each.name().to_string();
  if (!port.pkeys_problem.empty()) {
    return {Verdict::fail, concat({name, ": ", port.pkeys_problem}), "reload the driver"};
  }
  if (std::ranges::none_of(port.pkeys, is_full)) {
    return {Verdict::fail, concat({name, " has no full-member P_Key: ", keys_text(port)}),
            "the node is in no partition or only a limited member: ask the administrator of the subnet manager"};
  }
  if (auto ucx = judge_ucx_pkey(each, environment)) return *ucx;
  return judge_nccl_pkey(each, environment);
}

const GidEntry* gid_at(const PortFacts& port, std::uint32_t index) {
  const auto found = std::ranges::find(port.gids, index, &GidEntry::index);
  return found == port.gids.end() ? nullptr : &*found;
}

bool is_version_2(const GidEntry& entry) { return entry.type.starts_with("RoCE v2"); }
bool is_routable(const GidEntry& entry) { return !entry.value.is_link_local(); }

/// The addresses that two neighbours on a cable give themselves; NCCL takes them, and no router does.
bool has_only_own_addresses(const PortFacts& port) {
  bool any = false;
  for (const GidEntry& entry : port.gids) {
    if (is_routable(entry) && !entry.value.is_ipv4_link_local()) return false;
    any = any || entry.value.is_ipv4_link_local();
  }
  return any;
}

std::string gid_text(const JudgedPort& each, std::uint32_t index, const GidEntry* entry) {
  return concat({each.name().to_string(), " GID ", std::to_string(index), " ",
                 entry == nullptr ? "is unused" : entry->value.to_string(),
                 entry != nullptr && !entry->type.empty() ? concat({" (", printable(entry->type, 20), ")"}) : ""});
}

Finding judge_infiniband_gid(const JudgedPort& each, const EnvironmentReader& environment) {
  const std::uint32_t index = nccl_gid_index(environment, *each.port);
  const GidEntry* const entry = gid_at(*each.port, index);
  const std::string evidence = gid_text(each, index, entry);
  if (!each.port->gids_problem.empty()) {
    const bool no_table = each.port->gids.empty() && each.port->gids_problem.starts_with("there is no");
    return {no_table ? Verdict::unknown : Verdict::fail,
            concat({each.name().to_string(), ": ", each.port->gids_problem}), "reload the driver"};
  }
  if (entry != nullptr && !entry->value.is_unconfigured()) return {Verdict::pass, evidence, ""};
  return {Verdict::fail, evidence, "the port has no GID: wait for the subnet manager, or reload the driver"};
}

/// Checks the index in UCX_IB_GID_INDEX ("auto" is its default) or NCCL's choice.
Finding judge_roce_gid(const JudgedPort& each, const EnvironmentReader& environment) {
  const PortFacts& port = *each.port;
  const auto good =
      std::ranges::find_if(port.gids, [](const auto& entry) { return is_version_2(entry) && is_routable(entry); });
  const std::uint32_t index = nccl_gid_index(environment, port);
  const GidEntry* const entry = gid_at(port, index);
  const std::string evidence = gid_text(each, index, entry);
  if (is_erdma(*each.device) && entry != nullptr) return {Verdict::pass, evidence, ""};
  if (!port.gids_problem.empty() && good == port.gids.end())
    return {Verdict::fail, concat({each.name().to_string(), ": ", port.gids_problem}), "reload the driver"};
  if (good == port.gids.end()) {
    const bool untyped = entry != nullptr && is_routable(*entry) && entry->type.empty();
    if (untyped)
      return {Verdict::unknown, concat({evidence, ", its RoCE version cannot be read"}), "update the driver"};
    return {Verdict::fail, concat({each.name().to_string(), " has no routable RoCE v2 GID"}),
            "give its network interface an IPv4 address"};
  }
  const std::string remedy = concat({"set NCCL_IB_GID_INDEX=", std::to_string(good->index),
                                     " and UCX_IB_GID_INDEX=", std::to_string(good->index), ", or unset them"});
  if (entry == nullptr || entry->value.is_unconfigured()) return {Verdict::fail, evidence, remedy};
  if (!is_version_2(*entry) || !is_routable(*entry)) {
    const bool is_requested = nccl_parameter(environment, "NCCL_IB_GID_INDEX").value_or(-1) >= 0;
    return {is_requested ? Verdict::warn : Verdict::fail, concat({evidence, " is not a routable RoCE v2 address"}),
            remedy};
  }
  const auto ucx = text::to_number(environment("UCX_IB_GID_INDEX").value_or(""), 65535);
  if (ucx && gid_at(port, static_cast<std::uint32_t>(*ucx)) == nullptr) {
    return {Verdict::fail, concat({gid_text(each, static_cast<std::uint32_t>(*ucx), nullptr), " (UCX_IB_GID_INDEX)"}),
            remedy};
  }
  if (!port.gids_problem.empty()) {
    return {Verdict::unknown, concat({evidence, "; ", port.gids_problem}), "reload the driver"};
  }
  return {Verdict::pass, evidence, ""};
}

/// Whether this index works for a port, and NCCL would not take it by itself.
bool needs_index(const JudgedPort& each, const EnvironmentReader& environment, std::uint32_t index) {
  return index == working_gid_index(environment, *each.port) && index != nccl_gid_index(environment, *each.port);
}

constexpr std::uint64_t most_carrier_losses = 20;

Finding judge_netdev(const std::string& name, const NetFacts& net) {
  const std::string evidence = concat({name, " ", net.operstate.shown()});
  // "unknown": the driver does not track the state, as with loopback and some virtual devices.
  const bool up = net.operstate.text == "up" || net.operstate.text == "unknown";
  if (!net.operstate.present() || !up) return {Verdict::warn, evidence, concat({"ip link set ", name, " up"})};
  const auto losses = net.carrier_down_count.present() ? text::to_number(net.carrier_down_count.text, 1'000'000'000)
                                                       : std::optional<std::uint64_t>();
  if (losses && *losses > most_carrier_losses) {
    return {Verdict::warn, concat({evidence, ", lost carrier ", std::to_string(*losses), " times"}), "check the cable"};
  }
  return {Verdict::pass, evidence, ""};
}

std::string since_text(const Increase& increase, std::uint64_t now) {
  if (increase.since == 0) return "since the counters were reset (no baseline)";
  const std::uint64_t seconds = now > increase.since ? now - increase.since : 0;
  return concat({"in ", std::to_string(seconds / 60), " min"});
}

struct CounterLimit {
  std::string_view name;
  std::uint64_t most;       ///< more than this is a warning
  bool only_with_baseline;  ///< since boot it means little: every restart of a switch counts
};
constexpr std::array<CounterLimit, 10> error_limits = {{
    {"symbol_error", 0, false},
    {"link_error_recovery", 0, false},
    {"link_downed", 0, true},
    {"port_rcv_errors", 100, false},
    {"port_xmit_discards", 1000, false},
    {"local_link_integrity_errors", 0, false},
    {"excessive_buffer_overrun_errors", 0, false},
    {"port_rcv_remote_physical_errors", 100, false},
    {"port_xmit_constraint_errors", 100, false},  // packets of a partition that the port is not in
    {"port_rcv_constraint_errors", 100, false},
}};
constexpr std::uint64_t most_flaps = 2;
constexpr std::uint64_t saturated = 255;  // link_downed has 8 bits in hardware and saturates

Increase increase_of(const CounterHistory& history, const JudgedPort& each, std::string_view counter,
                     std::uint64_t window) {
  const Baseline none;
  return (history.baseline ? *history.baseline : none).increase(*each.device, *each.port, counter, history.now, window);
}

}  // namespace

Check check_state(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  const auto ports = judged_ports(node, request);
  std::size_t down = 0;
  for (const JudgedPort& each : ports) {
    findings.push_back(judge_state(each));
    down += each.port->is_active() ? 0U : 1U;
  }
  // If several ports of many are down, the node was probably cabled like that.
  const bool is_expected_whole = request.policy == launch::RdmaPolicy::require || (request.sku && request.sku->devices);
  const bool half_cabled = !is_expected_whole && down >= 2 && down < ports.size() && 2 * down >= ports.size();
  const bool alone = down == ports.size();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (findings[i].verdict != Verdict::fail || ports[i].port->is_active()) continue;
    if (half_cabled) findings[i].verdict = Verdict::warn;
    if (!alone) findings[i].remedy += not_ours;
  }
  return join_findings("ib.state", findings, no_port);
}

Check check_rate(const NodeFacts& node, const CheckRequest& request) {
  const auto ports = active_ports(node, request);
  std::map<std::string, double> best;
  for (const JudgedPort& each : ports) {
    const auto rate = each.port->rate.present() ? parse_rate(each.port->rate.text) : std::nullopt;
    if (rate) best[sibling_key(each)] = std::max(best[sibling_key(each)], rate->gbps);
  }
  std::vector<Finding> findings;
  for (const JudgedPort& each : ports) {
    RateExpectation expected;
    if (request.sku && request.sku->has_verbs()) expected.of_sku = request.sku->rate;
    expected.of_siblings = best[sibling_key(each)];
    expected.severity = request.policy == launch::RdmaPolicy::require ? Verdict::fail : Verdict::warn;
    findings.push_back(judge_rate(each, expected));
  }
  return join_findings("ib.rate", findings, "no active port (a port that is down reports no valid rate)");
}

Check check_lid(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  for (const JudgedPort& each : infiniband_ports(node, request)) findings.push_back(judge_lid(each));
  return join_findings("ib.lid", findings, "no InfiniBand port");
}

Check check_pkey(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  for (const JudgedPort& each : infiniband_ports(node, request)) {
    findings.push_back(judge_pkey(each, request.environment));
  }
  return join_findings("ib.pkey", findings, "no InfiniBand port");
}

Check check_gid(const NodeFacts& node, const CheckRequest& request) {
  const auto ports = judged_ports(node, request);
  const auto own_only =
      std::ranges::count_if(ports, [](const JudgedPort& each) { return has_only_own_addresses(*each.port); });
  // Cables from node to node are often left to such addresses, but then on all ports.
  const bool is_meant = own_only >= 2 && std::cmp_equal(own_only, ports.size());
  const auto common = settings_of(node, request).gid_index;
  std::vector<Finding> findings;
  for (const JudgedPort& each : ports) {
    if (each.port->layer() == LinkLayer::infiniband)
      findings.push_back(judge_infiniband_gid(each, request.environment));
    if (each.port->layer() != LinkLayer::ethernet) continue;
    Finding finding = judge_roce_gid(each, request.environment);
    if (finding.verdict == Verdict::pass && has_only_own_addresses(*each.port)) {
      finding = {is_meant ? Verdict::warn : Verdict::fail,
                 concat({finding.evidence, " is of 169.254.0.0/16, which no router forwards"}),
                 "give its network interface an address of the fabric: no DHCP server has answered it"};
    } else if (finding.verdict == Verdict::fail && common && needs_index(each, request.environment, *common)) {
      finding = {Verdict::warn,
                 concat({gid_text(each, *common, gid_at(*each.port, *common)), " works, and NCCL would take ",
                         std::to_string(nccl_gid_index(request.environment, *each.port)), " by itself"}),
                 concat({"set NCCL_IB_GID_INDEX=", std::to_string(*common), " and UCX_IB_GID_INDEX=",
                         std::to_string(*common), "; a step with rdma=require or rdma=prefer sets the first"})};
    }
    findings.push_back(std::move(finding));
  }
  return join_findings("ib.gid", findings, no_port);
}

Check check_netdev(const NodeFacts& node, const CheckRequest& request) {
  std::vector<Finding> findings;
  std::set<std::string> seen;
  for (const JudgedPort& each : judged_ports(node, request)) {
    for (const std::string& name : each.device->netdevs) {
      const auto found = node.netdevs.find(name);
      const bool unknown = found == node.netdevs.end() || found->second.operstate.absent();
      if (unknown || !seen.insert(name).second) continue;
      findings.push_back(judge_netdev(name, found->second));
    }
  }
  return join_findings("ib.netdev", findings, "no network interface belongs to the devices");
}

namespace {

/// A counter whose file does not hold a number, except for the kernel's text if a device lacks the counter.
std::optional<Finding> unreadable_counter(const JudgedPort& each, std::string_view name) {
  const auto found = each.port->counters.find(name);
  if (found == each.port->counters.end() || counter_value(*each.port, name)) return std::nullopt;
  if (found->second.present() && found->second.text.starts_with("N/A")) return std::nullopt;
  return Finding{Verdict::unknown, concat({each.name().to_string(), " ", name, " is ", found->second.shown()}),
                 "reload the driver: the counter cannot be read"};
}

}  // namespace

Check check_ipoib(const NodeFacts& node, const CheckRequest& request) {
  if (!request.sku || !request.sku->needs_ipoib) return {"ib.ipoib", Verdict::skip, "no ipoib=require", ""};
  std::vector<Finding> findings;
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (each.port->layer() != LinkLayer::infiniband) continue;
    const NetFacts* usable = nullptr;
    std::string what = "no IPoIB interface";
    for (const std::string& name : each.device->netdevs) {
      const auto found = node.netdevs.find(name);
      if (found == node.netdevs.end() || !found->second.infiniband) continue;
      what = concat({printable(name, 32), " is ", found->second.operstate.shown()});
      if (found->second.operstate.text != "up") continue;
      usable = &found->second;
      break;
    }
    findings.push_back({usable != nullptr ? Verdict::pass : Verdict::fail, concat({each.device->name, ": ", what}),
                        usable != nullptr ? "" : "modprobe ib_ipoib, then configure the interface and set it up"});
  }
  return join_findings("ib.ipoib", findings, "no InfiniBand port");
}

Check check_flaps(const NodeFacts& node, const CheckRequest& request, const CounterHistory& history) {
  std::vector<Finding> findings;
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (auto unreadable = unreadable_counter(each, "link_downed")) findings.push_back(std::move(*unreadable));
    const auto value = counter_value(*each.port, "link_downed");
    if (!value) continue;
    const std::string name = each.name().to_string();
    if (*value == saturated) {
      findings.push_back({Verdict::warn, concat({name, " link_downed is saturated at 255: the true number is unknown"}),
                          "reset the counters (perfquery -x)"});
      continue;
    }
    const Increase increase = increase_of(history, each, "link_downed", flap_window);
    const std::string evidence =
        concat({name, " went down ", std::to_string(increase.added), " times ", since_text(increase, history.now)});
    if (increase.added > most_flaps) findings.push_back({Verdict::warn, evidence, "check or replace the cable"});
    else findings.push_back({Verdict::pass, evidence, ""});
  }
  if (!history.problem.empty()) findings.push_back({Verdict::warn, history.problem, "write a new baseline"});
  return join_findings("ib.flap", findings, "no link_downed counter is available");
}

Check check_errors(const NodeFacts& node, const CheckRequest& request, const CounterHistory& history) {
  std::vector<Finding> findings;
  std::size_t judged = 0;
  for (const JudgedPort& each : judged_ports(node, request)) {
    for (const CounterLimit& limit : error_limits) {
      if (auto unreadable = unreadable_counter(each, limit.name)) findings.push_back(std::move(*unreadable));
      if (!counter_value(*each.port, limit.name)) continue;
      const Increase increase = increase_of(history, each, limit.name, history_window);
      const bool counts = increase.since != 0 || !limit.only_with_baseline;
      if (counts && increase.added > limit.most) {
        findings.push_back({Verdict::warn,
                            concat({each.name().to_string(), " ", limit.name, " +", std::to_string(increase.added), " ",
                                    since_text(increase, history.now)}),
                            "check cable and transceiver; compare with its neighbours"});
      }
      ++judged;
    }
  }
  PacketLoss loss = find_packet_loss(infiniband_ports(node, request), history, true);
  std::ranges::move(loss.findings, std::back_inserter(findings));
  if (findings.empty() && judged > 0) {
    findings.push_back({Verdict::pass, concat({text::count(judged, "counter"), " within limits"}), ""});
  }
  return join_findings("ib.err", findings, "no error counter is available");
}

}  // namespace amldist::fabric
