#include <algorithm>
#include <set>

#include "core/hex.hpp"
#include "core/text.hpp"
#include "fabric/checks/checks.hpp"

namespace amldist::fabric {
namespace {

/// Without facts about the process, its checks are skipped.
void add_process_checks(const NodeFacts& node, const Question& question, const Evidence& evidence, Report& report) {
  if (!evidence.process) {
    for (const char* const id : {"ib.devnode", "ib.provider", "ib.memlock", "ib.gdr", "ib.env", "ib.loopback"}) {
      report.checks.push_back({id, Verdict::skip, "checked by the task's own process", ""});
    }
    return;
  }
  report.checks.push_back(check_device_nodes(node, question, *evidence.process));
  report.checks.push_back(check_provider(node, question, *evidence.process));
  report.checks.push_back(check_memlock(node, question, *evidence.process));
  report.checks.push_back(check_gpudirect(node, question, *evidence.process));
  report.checks.push_back(check_environment(node, question));
  report.checks.push_back(check_loopback(node, question, *evidence.process));
}

}  // namespace

Report verify_node(const NodeFacts& node, const Question& question, const Evidence& evidence) {
  Report report;
  report.policy = question.policy;
  report.unknown_fails = question.unknown_fails && question.policy == RdmaPolicy::require;
  report.checks.push_back(check_policy(node, question));
  if (question.policy == RdmaPolicy::off) return report;
  report.verified = !judged_ports(node, question).empty();
  report.checks.push_back(check_sysfs(node, question));
  report.checks.push_back(check_count(node, question));
  report.checks.push_back(check_link_layer(node, question));
  report.checks.push_back(check_state(node, question));
  report.checks.push_back(check_rate(node, question));
  report.checks.push_back(check_lid(node, question));
  report.checks.push_back(check_pkey(node, question));
  report.checks.push_back(check_gid(node, question));
  report.checks.push_back(check_netdev(node, question));
  report.checks.push_back(check_ipoib(node, question));
  report.checks.push_back(check_flaps(node, question, evidence.counters));
  report.checks.push_back(check_errors(node, question, evidence.counters));
  report.checks.push_back(check_firmware(node, question));
  report.checks.push_back(check_virtual_functions(node));
  report.checks.push_back(check_pcie(node, question));
  report.checks.push_back(check_affinity(node, question));
  add_process_checks(node, question, evidence, report);
  report.checks.push_back(check_kernel_log(evidence.kernel_log, evidence.no_kernel_log));
  report.checks.push_back(check_retransmissions(node, question, evidence.counters));
  report.checks.push_back(check_mtu(node, question));
  report.checks.push_back(check_flow_control(node, question));
  report.checks.push_back(check_congestion(node, question));
  report.checks.push_back(check_pci_functions(node));
  report.checks.push_back(check_pci_errors(node, question));
  report.checks.push_back(check_bridges(node, question));
  report.checks.push_back(check_access_control(node, question));
  return report;
}

FabricSettings settings_of(const NodeFacts& node, const Question& question) {
  FabricSettings settings;
  bool same_index = true;
  for (const JudgedPort& each : judged_ports(node, question)) {
    const LinkLayer layer = each.port->layer();
    if (!each.port->is_active() || layer == LinkLayer::other) continue;
    settings.ports.push_back(each.name());
    if (layer != LinkLayer::ethernet) {
      same_index = false;
      continue;
    }
    const std::uint32_t index = nccl_gid_index(question.environment, *each.port);
    same_index = same_index && settings.gid_index.value_or(index) == index;
    settings.gid_index = index;
  }
  if (!same_index) settings.gid_index.reset();
  return settings;
}

std::string partitions_of(const NodeFacts& node, const Question& question) {
  constexpr std::uint16_t key_bits = 0x7fff;  // the highest bit tells members apart
  const std::int64_t index = nccl_parameter(question.environment, "NCCL_IB_PKEY").value_or(0);
  std::set<std::string> partitions;
  for (const JudgedPort& each : judged_ports(node, question)) {
    const auto& keys = each.port->pkeys;
    if (!each.port->is_active() || each.port->layer() != LinkLayer::infiniband) continue;
    const auto chosen = std::ranges::find(keys, index, [](const PkeyEntry& key) { return std::int64_t{key.index}; });
    if (keys.empty()) partitions.insert("none");
    else partitions.insert("0x" + to_hex((chosen == keys.end() ? keys.front() : *chosen).value & key_bits, 2));
  }
  std::string out;
  for (const std::string& each : partitions) out += text::concat({out.empty() ? "" : ",", each});
  return out;
}

}  // namespace amldist::fabric
