// The checks: pure functions from facts to verdicts. docs/fabric.md has the table of ids, severities and remedies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/checks/check_request.hpp"
#include "fabric/facts/counters.hpp"
#include "fabric/facts/node_facts.hpp"
#include "fabric/facts/process_facts.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

// ---- checks of the whole node (node_checks.cpp) ----
[[nodiscard]] Check check_policy(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_sysfs(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_count(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_link_layer(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_firmware(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_virtual_functions(const NodeFacts& node);
[[nodiscard]] Check check_pcie(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_affinity(const NodeFacts& node, const CheckRequest& request);
/// Why the kernel log was not read.
struct KernelLogProblem {
  std::string reason = "not requested";
  bool was_asked_for = false;  ///< the user named the file: failing to read it is a finding
};
/// `lines`: of the kernel log; nullopt if it was not read.
[[nodiscard]] Check check_kernel_log(const std::optional<std::vector<std::string>>& lines,
                                     const KernelLogProblem& problem);

// ---- checks of each judged port (port_checks.cpp) ----
[[nodiscard]] Check check_state(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_rate(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_lid(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_pkey(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_gid(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_netdev(const NodeFacts& node, const CheckRequest& request);
/// Whether each card of the fabric has a usable IPoIB interface, if the SKU says ipoib=require.
[[nodiscard]] Check check_ipoib(const NodeFacts& node, const CheckRequest& request);

/// A baseline of the counters. Without one, counters count from their last reset.
struct CounterHistory {
  std::optional<Baseline> baseline;
  std::string problem;  ///< why the requested baseline cannot be used
  std::uint64_t now = 0;
};
[[nodiscard]] Check check_flaps(const NodeFacts& node, const CheckRequest& request, const CounterHistory& history);
[[nodiscard]] Check check_errors(const NodeFacts& node, const CheckRequest& request, const CounterHistory& history);

// ---- RoCE, beside the fabric itself: warnings only (roce_checks.cpp) ----
[[nodiscard]] Check check_retransmissions(const NodeFacts& node, const CheckRequest& request,
                                          const CounterHistory& history);
[[nodiscard]] Check check_mtu(const NodeFacts& node, const CheckRequest& request);
/// Priority flow control and congestion control (ECN): "PFC 3, ECN 3" for each port.
[[nodiscard]] Check check_flow_control(const NodeFacts& node, const CheckRequest& request);
/// Marked packets that no notification follows, and notifications that are ignored.
[[nodiscard]] Check check_congestion(const NodeFacts& node, const CheckRequest& request);
/// The common MTU, and the common setting of flow and congestion control, of all RoCE ports; empty if they differ or
/// are not known. Nodes should agree.
[[nodiscard]] std::string common_mtu(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] std::string common_flow_control(const NodeFacts& node, const CheckRequest& request);

// ---- the host: warnings only (host_checks.cpp) ----
[[nodiscard]] Check check_pci_functions(const NodeFacts& node);
[[nodiscard]] Check check_pci_errors(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_bridges(const NodeFacts& node, const CheckRequest& request);
/// Whether a bridge that a GPU and a card share sends their traffic with each other through the root complex.
[[nodiscard]] Check check_access_control(const NodeFacts& node, const CheckRequest& request);

// ---- checks of this process (process_checks.cpp) ----
[[nodiscard]] Check check_device_nodes(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process);
[[nodiscard]] Check check_provider(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process);
[[nodiscard]] Check check_memlock(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process);
[[nodiscard]] Check check_gpudirect(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process);
[[nodiscard]] Check check_environment(const NodeFacts& node, const CheckRequest& request);
[[nodiscard]] Check check_loopback(const NodeFacts& node, const CheckRequest& request, const ProcessFacts& process);

// ---- all checks together (verification.cpp) ----

/// The facts of a verification in addition to sysfs.
struct Evidence {
  CounterHistory counters;
  std::optional<ProcessFacts> process;  ///< nullopt: another process judges this (the node part, as root)
  std::optional<std::vector<std::string>> kernel_log;
  KernelLogProblem no_kernel_log;
};

/// All checks of one node, in the order of the documentation. Policy off: one skip.
[[nodiscard]] Report verify_node(const NodeFacts& node, const CheckRequest& request, const Evidence& evidence);

/// From the ports that are judged, active and readable.
[[nodiscard]] FabricSettings settings_of(const NodeFacts& node, const CheckRequest& request);

/// "0x0018,0x0022": the partitions that NCCL would use on the judged, active InfiniBand ports, each once and sorted, by
/// the low 15 bits of the keys. Nodes that differ cannot communicate. Empty without such a port.
[[nodiscard]] std::string partitions_of(const NodeFacts& node, const CheckRequest& request);

}  // namespace amldist::fabric
