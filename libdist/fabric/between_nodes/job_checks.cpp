#include "fabric/between_nodes/job_checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/report/report_json.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

/// Long enough for a selection of 64 ports.
constexpr std::size_t longest_trait = 2048;

/// "A, B" of a set. Differences within one node are part of its trait.
std::string joined(const std::set<std::string>& values) {
  std::string out;
  for (const std::string& each : values) out += concat({out.empty() ? "" : ", ", printable(each, 60)});
  return out.empty() ? "none" : out;
}

/// Which trait belongs to which check, and how severe a difference is.
struct TraitRule {
  std::string_view check;
  std::string_view trait;
  Verdict severity;
  std::string_view what;
  std::string_view remedy;
};
constexpr std::array<TraitRule, 11> trait_rules = {{
    {"ib.pkey", "pkey", Verdict::fail, "P_Key",
     "the nodes are in different partitions: ask for nodes of one scale set"},
    {"ib.rate", "rate", Verdict::warn, "rate", "the slowest node limits all others: exclude it"},
    {"ib.count", "ports", Verdict::fail, "ports", "NCCL needs the same number of ports on all nodes: exclude the node"},
    {"gpu.count", "gpu_driver", Verdict::warn, "GPU driver", "install the same driver on all nodes"},
    {"gpu.fabric", "nvlink", Verdict::warn, "NVLink domain and clique",
     "the nodes share no NVLink domain, NCCL uses the network between them: ask for nodes of one rack"},
    {"roce.mtu", "mtu", Verdict::warn, "MTU", "give all interfaces of the fabric the same MTU"},
    {"roce.qos", "qos", Verdict::warn, "flow control",
     "set priority flow control and ECN alike on all nodes (mlnx_qos, dcb)"},
    {"ib.fw", "rdma_driver", Verdict::warn, "RDMA driver", "install the same driver (OFED) on all nodes"},
    {"ib.provider", "verbs_library", Verdict::warn, "verbs library", "install the same rdma-core on all nodes"},
    {"ib.gdr", "peer_memory", Verdict::warn, "GPUDirect module", "load the same module on all nodes"},
    {"ib.fw", "firmware", Verdict::warn, "firmware", "install the same firmware on all cards of this model"},
}};

using HostsOfValue = std::map<std::string, std::vector<std::string>>;

/// Reports the nodes that differ from the largest group of equal values.
void compare(const HostsOfValue& hosts_of_value, const TraitRule& rule, std::vector<Difference>& differences) {
  if (hosts_of_value.size() < 2) return;
  const auto most = std::ranges::max_element(hosts_of_value, {}, [](const auto& each) { return each.second.size(); });
  for (const auto& [value, hosts] : hosts_of_value) {
    if (value == most->first) continue;
    const std::string others = hosts.size() > 1 ? concat({" and ", std::to_string(hosts.size() - 1), " more"}) : "";
    std::string evidence =
        concat({hosts.front(), others, hosts.size() > 1 ? " have " : " has ", rule.what, " ", value, ", ",
                text::count(most->second.size(), "node"), most->second.size() > 1 ? " have " : " has ", most->first,
                " (", most->second.front(), ")"});
    differences.push_back({std::string(rule.check), {rule.severity, std::move(evidence), std::string(rule.remedy)}});
  }
}

/// "firmware" and "firmware:MSF0000000047" belong to the rule "firmware"; each is compared separately.
bool belongs_to(std::string_view trait, std::string_view rule) {
  return trait.starts_with(rule) && (trait.size() == rule.size() || trait[rule.size()] == ':');
}

void compare_traits(const std::vector<NodeSummary>& nodes, const TraitRule& rule,
                    std::vector<Difference>& differences) {
  std::map<std::string, HostsOfValue, std::less<>> values_of;
  for (const NodeSummary& node : nodes) {
    for (auto it = node.traits.lower_bound(rule.trait); it != node.traits.end() && it->first.starts_with(rule.trait);
         ++it) {
      if (belongs_to(it->first, rule.trait)) values_of[it->first][it->second].push_back(node.host);
    }
  }
  for (const auto& [trait, hosts_of_value] : values_of) compare(hosts_of_value, rule, differences);
}

/// Reports nodes without a port if others have some: NCCL would use another network there, and wait for ever.
void name_empty_nodes(const std::vector<NodeSummary>& nodes, std::vector<Finding>& findings) {
  if (std::ranges::none_of(nodes, &NodeSummary::verified)) return;
  for (const NodeSummary& node : nodes) {
    if (node.verified) continue;
    findings.push_back(
        {Verdict::fail, concat({node.host, " has no port to verify, but other nodes have"}), "exclude the node"});
  }
}

/// GUIDs and addresses that two nodes have. Where they have all of them, they are one machine with several slurmd.
void find_shared_identities(const std::vector<NodeSummary>& nodes, std::vector<Difference>& differences) {
  std::map<std::string_view, const NodeSummary*> owners;
  for (const NodeSummary& node : nodes) {
    const auto own = node.traits.find("identities");
    if (own == node.traits.end()) continue;
    for (const std::string_view each : text::split(own->second, ' ')) {
      const auto [first, is_new] = owners.try_emplace(each, &node);
      if (is_new || first->second == &node || first->second->traits.find("identities")->second == own->second) continue;
      differences.push_back(
          {"ib.gid",
           {Verdict::warn,
            concat({first->second->host, " and ", node.host, " have the same address ", printable(each, 48)}),
            "give each port of the cluster a GUID and an address of its own"}});
    }
  }
}

std::vector<Finding> findings_of(const std::vector<NodeSummary>& nodes, const std::vector<Difference>& differences,
                                 std::string_view id) {
  std::vector<Finding> findings;
  for (const NodeSummary& node : nodes) {
    const auto found = std::ranges::find(node.checks, id, &Check::id);
    if (found == node.checks.end() || found->verdict == Verdict::skip) continue;
    findings.push_back({found->verdict, concat({node.host, ": ", found->evidence}), found->remedy});
  }
  if (id == "ib.sysfs") name_empty_nodes(nodes, findings);
  for (const Difference& each : differences) {
    if (each.check == id) findings.push_back(each.finding);
  }
  return findings;
}

constexpr double nanoseconds = 1000;  // per microsecond, likewise
constexpr double megabits = 1000;     // per gigabit: the wire format uses megabits

/// "397", "2.4".
std::string rounded_text(double value) {
  const auto tenths = static_cast<std::uint64_t>(std::llround(value * 10));
  if (tenths >= 100) return std::to_string((tenths + 5) / 10);
  return concat({std::to_string(tenths / 10), ".", std::to_string(tenths % 10)});
}

std::string host_at(const std::vector<NodeSummary>& nodes, std::uint32_t index) {
  return index < nodes.size() ? nodes[index].host : concat({"node ", std::to_string(index)});
}

Check check_pairs(const std::vector<NodeSummary>& nodes, const PairResults& results) {
  std::vector<Finding> findings;
  for (const PairResult& each : results.pairs) {
    const std::string way = concat({host_at(nodes, each.from), " -> ", host_at(nodes, each.to), " over ", each.device});
    const std::string speed = each.gbps > 0 ? concat({", ", rounded_text(each.gbps), " Gb/s"}) : "";
    if (!each.problem.empty()) {
      findings.push_back({Verdict::fail, concat({way, ": ", each.problem}),
                          "check the switch between the two, and their GIDs and P_Keys"});
    } else if (results.least_gbps > 0 && each.gbps < results.least_gbps) {
      findings.push_back({Verdict::fail, concat({way, speed, ", expected ", rounded_text(results.least_gbps)}),
                          "see ib.rate, ib.pcie and ib.err of both"});
    } else {
      findings.push_back({Verdict::pass, concat({way, speed}), ""});
    }
  }
  return join_findings("ib.pair", findings, results.reason.empty() ? "no pair" : results.reason);
}

/// Whether the evidence of a failed check names the port.
bool is_blamed(const Report& report, const JudgedPort& each) {
  return std::ranges::any_of(report.checks, [&](const Check& check) {
    const bool named = check.evidence.find(each.name().to_string() + " ") != std::string::npos ||
                       check.evidence.find(each.device->name + ":") != std::string::npos ||
                       check.evidence.find(each.device->name + " ") != std::string::npos;
    // That check counts: it names the ports that are there.
    return check.verdict == Verdict::fail && named && check.id != "ib.count";
  });
}

std::vector<PortSummary> port_summaries(const NodeFacts& node, const CheckRequest& request, const Report& report) {
  std::vector<PortSummary> out;
  for (const JudgedPort& each : judged_ports(node, request)) {
    const bool active = each.port->is_active();
    out.push_back({each.name().to_string(), active ? each.port->rate.shown() : each.port->state.shown(),
                   !active || is_blamed(report, each)});
  }
  return out;
}

/// As many as a trait holds: those of the largest nodes are longer.
std::string shown_identities(const NodeFacts& node, const CheckRequest& request) {
  std::string out;
  for (const std::string& each : identities_of(node, request)) {
    if (out.size() + 1 + each.size() > longest_trait) break;
    out += concat({out.empty() ? "" : " ", each});
  }
  return out;
}

}  // namespace

std::vector<Difference> differences_between(const std::vector<NodeSummary>& nodes) {
  std::vector<Difference> out;
  for (const TraitRule& rule : trait_rules) compare_traits(nodes, rule, out);
  for (const SharedAttribute& each : shared_attributes())
    compare_traits(nodes, {each.check, each.trait, Verdict::warn, each.what, each.remedy}, out);
  find_shared_identities(nodes, out);
  return out;
}

void add_gpu_traits(NodeSummary& summary, const GpuStates& gpus) {
  if (!gpus.driver.empty()) summary.traits["gpu_driver"] = printable(gpus.driver, 40);
  // A node outside of the domain is as far from the others as one of another domain.
  const std::string domain = nvlink_domain(gpus);
  if (!gpus.gpus.empty()) summary.traits["nvlink"] = domain.empty() ? "none" : domain;
}

void add_process_traits(NodeSummary& summary, const ProcessFacts& process) {
  if (!process.verbs.library.empty()) summary.traits["verbs_library"] = printable(process.verbs.library, 80);
}

NodeSummary summarise(const NodeFacts& node, const CheckRequest& request, const Report& report) {
  NodeSummary out{node.host, report.verified, report.checks, port_summaries(node, request, report), {}};
  std::set<std::string> rates;
  std::map<std::string, std::set<std::string>> firmware;  // by model
  std::size_t ports = 0;
  if (node.gpu_version.present() && !node.gpus.empty()) out.traits["gpu_driver"] = printable(node.gpu_version.text, 40);
  for (const JudgedPort& each : judged_ports(node, request)) {
    if (!each.port->is_active()) continue;
    ++ports;
    rates.insert(each.port->rate.shown());
    if (each.device->fw_ver.present()) {
      const Attribute& model = each.device->board_id;
      firmware[model.present() ? model.text : "unknown"].insert(each.device->fw_ver.text);
    }
  }
  if (ports == 0) return out;
  const FabricSettings settings = settings_of(node, request);
  if (!settings.ports.empty()) out.traits["nccl_ib_hca"] = exact_selection(settings.ports);
  if (settings.gid_index) out.traits["nccl_ib_gid_index"] = std::to_string(*settings.gid_index);
  // If the SKU says how many there are, ib.count has counted them, and a step may have nodes of several SKUs.
  if (!request.sku || !request.sku->devices) out.traits["ports"] = std::to_string(ports);
  out.traits["rate"] = joined(rates);
  if (const std::string keys = partitions_of(node, request); !keys.empty()) out.traits["pkey"] = keys;
  if (const std::string mtu = common_mtu(node, request); !mtu.empty()) out.traits["mtu"] = mtu;
  if (const std::string qos = common_flow_control(node, request); !qos.empty()) out.traits["qos"] = qos;
  for (auto& [name, value] : shared_traits(node, request)) out.traits[name] = value;
  if (const std::string identities = shown_identities(node, request); !identities.empty())
    out.traits["identities"] = identities;
  if (node.mlx5_version.present()) out.traits["rdma_driver"] = node.mlx5_version.text;
  if (!node.gpus.empty()) out.traits["peer_memory"] = node.peer_memory.empty() ? "none" : node.peer_memory;
  for (const auto& [model, versions] : firmware)
    out.traits[concat({"firmware:", printable(model, 40)})] = joined(versions);
  return out;
}

std::string to_text(const NodeSummary& summary) {
  std::string out = concat({summary.host, "\t", summary.verified ? "1" : "0", "\n"});
  for (const auto& [name, value] : summary.traits) out += concat({name, "=", value, "\n"});
  for (const PortSummary& port : summary.ports) {
    out += concat({port.sick ? "sick" : "good", " ", port.name, " ", port.text, "\n"});
  }
  return out + "\n" + to_lines(summary.checks);
}

Result<NodeSummary> summary_from_text(std::string_view text) {
  const auto end = text.find("\n\n");
  if (end == std::string_view::npos) return Error{Errc::invalid_argument, "a node's summary is cut off"};
  NodeSummary out;
  const auto lines = text::split(text.substr(0, end), '\n');
  const auto head = text::split(lines.front(), '\t');
  if (head.size() != 2) return Error{Errc::invalid_argument, "a node's summary has no first line"};
  out.host = printable(head[0], 64);
  out.verified = head[1] == "1";
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].starts_with("sick ") || lines[i].starts_with("good ")) {
      const std::string_view rest = lines[i].substr(5);
      const auto blank = std::min(rest.find(' '), rest.size() - 1);
      out.ports.push_back(
          {printable(rest.substr(0, blank), 64), printable(rest.substr(blank + 1), 80), lines[i].starts_with("sick ")});
      continue;
    }
    const auto equals = lines[i].find('=');
    if (equals == std::string_view::npos)
      return Error{Errc::invalid_argument, "a node's summary has a trait without value"};
    out.traits[std::string(lines[i].substr(0, equals))] = printable(lines[i].substr(equals + 1), longest_trait);
  }
  auto checks = checks_from_lines(text.substr(end + 2));
  if (!checks) return checks.error();
  out.checks = std::move(*checks);
  return out;
}

std::string to_line(const PairResult& result) {
  return concat({std::to_string(result.from), "\t", std::to_string(result.to), "\t", result.device, "\t",
                 std::to_string(std::llround(result.gbps * megabits)), "\t",
                 std::to_string(std::llround(result.latency_us * nanoseconds)), "\t", printable(result.problem, 200),
                 "\t", std::to_string(std::llround(result.gpu.gbps * megabits)), "\t",
                 printable(result.gpu.reason, 200), "\t", printable(result.gpu.problem, 200), "\n"});
}

Result<std::vector<PairResult>> pairs_from_lines(std::string_view text) {
  std::vector<PairResult> out;
  for (const std::string_view line : text::split(text, '\n')) {
    if (line.empty()) continue;
    const auto fields = text::split(line, '\t');
    constexpr std::uint64_t most = 1'000'000'000;
    const auto number = [&](std::size_t index) {
      return fields.size() == 9 ? text::to_number(fields[index], most) : std::nullopt;
    };
    const auto from = number(0);
    const auto to = number(1);
    const auto gbps = number(3);
    const auto latency = number(4);
    const auto of_gpu = number(6);
    if (!from || !to || !gbps || !latency || !of_gpu)
      return Error{Errc::invalid_argument, "a line about a pair of nodes is malformed"};
    out.push_back({static_cast<std::uint32_t>(*from),
                   static_cast<std::uint32_t>(*to),
                   printable(fields[2], 64),
                   printable(fields[5], 256),
                   static_cast<double>(*gbps) / megabits,
                   static_cast<double>(*latency) / nanoseconds,
                   {static_cast<double>(*of_gpu) / megabits, printable(fields[7], 256), printable(fields[8], 256)}});
  }
  return out;
}

Report verify_job(const std::vector<NodeSummary>& nodes, const PairResults& pairs, launch::RdmaPolicy policy) {
  Report report;
  report.policy = policy;
  std::vector<std::string> ids;
  for (const NodeSummary& node : nodes) {
    report.verified = report.verified || node.verified;
    for (const Check& check : node.checks) {
      if (std::ranges::find(ids, check.id) == ids.end()) ids.push_back(check.id);
    }
  }
  const auto differences = differences_between(nodes);
  for (const std::string& id : ids) {
    report.checks.push_back(join_findings(id, findings_of(nodes, differences, id), "skipped on every node"));
  }
  report.checks.push_back(check_pairs(nodes, pairs));
  return report;
}

}  // namespace amldist::fabric
