#include <algorithm>
#include <set>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/checks/siblings.hpp"

namespace amldist::fabric {
namespace {

/// Without facts about the process, its checks are skipped.
void add_process_checks(const NodeFacts& node, const CheckRequest& request, const Evidence& evidence, Report& report) {
  if (!evidence.process) {
    for (const char* const id : {"ib.devnode", "ib.provider", "ib.memlock", "ib.gdr", "ib.env", "ib.loopback"}) {
      report.checks.push_back({id, Verdict::skip, "checked by the task's own process", ""});
    }
    return;
  }
  report.checks.push_back(check_device_nodes(node, request, *evidence.process));
  report.checks.push_back(check_provider(node, request, *evidence.process));
  report.checks.push_back(check_memlock(node, request, *evidence.process));
  report.checks.push_back(check_gpudirect(node, request, *evidence.process));
  report.checks.push_back(check_environment(node, request));
  report.checks.push_back(check_loopback(node, request, *evidence.process));
}

}  // namespace

Report verify_node(const NodeFacts& node, const CheckRequest& request, const Evidence& evidence) {
  Report report;
  report.policy = request.policy;
  report.unknown_fails = request.unknown_fails && request.policy == launch::RdmaPolicy::require;
  report.checks.push_back(check_policy(node, request));
  if (request.policy == launch::RdmaPolicy::off) return report;
  report.verified = !judged_ports(node, request).empty();
  report.checks.push_back(check_sysfs(node, request));
  report.checks.push_back(check_count(node, request));
  report.checks.push_back(check_link_layer(node, request));
  report.checks.push_back(check_state(node, request));
  report.checks.push_back(check_rate(node, request));
  report.checks.push_back(check_lid(node, request));
  report.checks.push_back(check_pkey(node, request));
  report.checks.push_back(check_gid(node, request));
  report.checks.push_back(check_netdev(node, request));
  report.checks.push_back(check_ipoib(node, request));
  report.checks.push_back(check_flaps(node, request, evidence.counters));
  report.checks.push_back(check_errors(node, request, evidence.counters));
  report.checks.push_back(check_firmware(node, request));
  report.checks.push_back(check_virtual_functions(node));
  report.checks.push_back(check_pcie(node, request));
  report.checks.push_back(check_affinity(node, request));
  add_process_checks(node, request, evidence, report);
  report.checks.push_back(check_kernel_log(evidence.kernel_log, evidence.no_kernel_log));
  report.checks.push_back(check_retransmissions(node, request, evidence.counters));
  report.checks.push_back(check_mtu(node, request));
  report.checks.push_back(check_flow_control(node, request));
  report.checks.push_back(check_congestion(node, request));
  report.checks.push_back(check_pci_functions(node));
  report.checks.push_back(check_pci_errors(node, request));
  report.checks.push_back(check_bridges(node, request));
  report.checks.push_back(check_access_control(node, request));
  for (const Difference& each : differences_between_siblings(node, request)) {
    const auto check = std::ranges::find(report.checks, each.check, &Check::id);
    if (check != report.checks.end()) add_finding(*check, each.finding);
  }
  return report;
}

FabricSettings settings_of(const NodeFacts& node, const CheckRequest& request) {
  FabricSettings settings;
  bool same_index = true;
  for (const JudgedPort& each : judged_ports(node, request)) {
    const LinkLayer layer = each.port->layer();
    if (!each.port->is_active() || layer == LinkLayer::other) continue;
    settings.ports.push_back(each.name());
    if (layer != LinkLayer::ethernet) {
      same_index = false;
      continue;
    }
    const std::uint32_t index = working_gid_index(request.environment, *each.port);
    same_index = same_index && settings.gid_index.value_or(index) == index;
    settings.gid_index = index;
  }
  if (!same_index) settings.gid_index.reset();
  return settings;
}

std::string partitions_of(const NodeFacts& node, const CheckRequest& request) {
  constexpr std::uint16_t key_bits = 0x7fff;  // the highest bit distinguishes full from limited members
  const std::int64_t index = nccl_parameter(request.environment, "NCCL_IB_PKEY").value_or(0);
  std::set<std::string> partitions;
  for (const JudgedPort& each : judged_ports(node, request)) {
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
