// The checks: pure functions from facts to verdicts. docs/fabric.md has the table of ids, severities and remedies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/counters.hpp"
#include "fabric/node_facts.hpp"
#include "fabric/process_facts.hpp"
#include "fabric/question.hpp"
#include "fabric/verdict.hpp"

namespace amldist::fabric {

// ---- about the node as a whole (node_checks.cpp) ----
[[nodiscard]] Check check_policy(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_sysfs(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_count(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_link_layer(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_firmware(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_virtual_functions(const NodeFacts& node);
[[nodiscard]] Check check_pcie(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_affinity(const NodeFacts& node, const Question& question);
/// `lines`: of the kernel's log; nullopt when it was not read, with the reason.
[[nodiscard]] Check check_kernel_log(const std::optional<std::vector<std::string>>& lines, std::string_view reason);

// ---- about each judged port (port_checks.cpp) ----
[[nodiscard]] Check check_state(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_rate(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_lid(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_pkey(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_gid(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_netdev(const NodeFacts& node, const Question& question);

/// Counters with what is known of the past; without a baseline they count from their last reset.
struct CounterHistory {
  std::optional<Baseline> baseline;
  std::string problem;  ///< why there is none although one was asked for
  std::uint64_t now = 0;
};
[[nodiscard]] Check check_flaps(const NodeFacts& node, const Question& question, const CounterHistory& history);
[[nodiscard]] Check check_errors(const NodeFacts& node, const Question& question, const CounterHistory& history);

// ---- about this process (process_checks.cpp) ----
[[nodiscard]] Check check_device_nodes(const NodeFacts& node, const Question& question, const ProcessFacts& process);
[[nodiscard]] Check check_provider(const NodeFacts& node, const Question& question, const ProcessFacts& process);
[[nodiscard]] Check check_memlock(const NodeFacts& node, const Question& question, const ProcessFacts& process);
[[nodiscard]] Check check_gpudirect(const NodeFacts& node, const Question& question, const ProcessFacts& process);
[[nodiscard]] Check check_environment(const NodeFacts& node, const Question& question);
[[nodiscard]] Check check_loopback(const NodeFacts& node, const Question& question, const ProcessFacts& process);

// ---- put together (verification.cpp) ----

/// What a verification knows beside sysfs.
struct Evidence {
  CounterHistory counters;
  std::optional<ProcessFacts> process;  ///< nullopt: not this process's to judge (the node part, as root)
  std::optional<std::vector<std::string>> kernel_log;
  std::string no_kernel_log = "not asked for";
};

/// All checks of one node, in the order of the documentation. Policy off: one skip.
[[nodiscard]] Report verify_node(const NodeFacts& node, const Question& question, const Evidence& evidence);

/// What NCCL is to be told, from the ports that are judged, active and known.
struct FabricSettings {
  std::vector<PortName> ports;
  std::optional<std::uint32_t> gid_index;  ///< RoCE, where it is the same on all ports
};
[[nodiscard]] FabricSettings settings_of(const NodeFacts& node, const Question& question);

}  // namespace amldist::fabric
