// The few functions of libslurm that the plugin calls beyond SPANK. Each is looked up at run time in the process that
// loaded the plugin, because the plugin must also load if a release of Slurm lacks one of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/net/ipv4.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/result.hpp"
#include "launch/placement/components.hpp"
#include "launch/placement/step_facts.hpp"
#include "spank/slurm/slurm_headers.hpp"
#include "step/messages/end_record.hpp"
#include "step/server/roll_call.hpp"

namespace amldist::spank {

/// Nodes and exact task map of a step, from slurmctld: one remote call. Errors: unavailable, with Slurm's reason.
[[nodiscard]] Result<launch::Placement> fetch_step_layout(std::uint32_t job_id, std::uint32_t step_id);

/// Where to look for the components of a heterogeneous step.
struct ComponentSearch {
  /// Jobs that may each run one, in the order of its ranks. nullopt: the components of the step's own heterogeneous
  /// job, as slurmctld lists them.
  std::optional<std::vector<std::uint32_t>> jobs;
  std::uint32_t tasks = 0;  ///< of the whole step; 0: not known
};

/// A heterogeneous step (srun A : B). A node that two components share is one node.
struct HeterogeneousLayout {
  launch::Placement placement;
  std::vector<launch::Component> components;  ///< in the order of their ranks
};

/// Nodes and exact task map of a heterogeneous step: one remote call for each component, and up to three more to find
/// them. Errors: unavailable, mismatch when the components found do not make up the step.
[[nodiscard]] Result<HeterogeneousLayout> fetch_heterogeneous_layout(std::uint32_t job_id, std::uint32_t step_id,
                                                                     const ComponentSearch& search);

/// The active features of each of these nodes, as Slurm writes them ("ib,h100"), in their order. One remote call, whose
/// answer covers all nodes of the cluster. Errors: unavailable, also if slurmctld does not know a node.
[[nodiscard]] Result<std::vector<std::string>> fetch_node_features(const Hostlist& hosts);

/// The address by which Slurm reaches a node (NodeAddr in slurm.conf). No remote call beyond a name look-up. Errors:
/// unavailable.
[[nodiscard]] Result<IpAddress> slurm_node_address(const std::string& node);
/// The same, of IPv4 only.
[[nodiscard]] Result<Ipv4> slurm_node_ipv4(const std::string& node);

/// Ends every task of a step on every node. Errors: unavailable.
[[nodiscard]] Result<void> end_step(std::uint32_t job_id, std::uint32_t step_id);

/// Sends a signal to every task of a step on every node. Errors: unavailable.
[[nodiscard]] Result<void> signal_step(std::uint32_t job_id, std::uint32_t step_id, int signal);

/// What a node's slurmd says about a step, with the rights of this process: one remote call to that node, and one to
/// slurmctld where the step is not there. `component`: of the step inside its job, or NO_VAL. Leaves the standard
/// streams of this process closed, for libslurm writes an error there: call it in a process of its own.
[[nodiscard]] step::NodePresence presence_of_step(std::uint32_t job_id, std::uint32_t step_id, std::uint32_t component,
                                                  const std::string& node);

/// KillWait of slurm.conf: the time between a polite signal and SIGKILL. 30 s where it cannot be asked for.
[[nodiscard]] std::chrono::seconds kill_wait();

enum class JobEnd : std::uint8_t { time_limit, deadline, preempted, node_lost, cancelled, requeued };

/// What ended a job, if something other than its tasks did. nullopt also if slurmctld does not answer. One remote call.
[[nodiscard]] std::optional<JobEnd> end_of_job(std::uint32_t job_id);

/// A job's comment, which may be empty. One remote call. Errors: unavailable.
[[nodiscard]] Result<std::string> comment_of_job(std::uint32_t job_id);

/// Replaces a job's comment, with the rights of this process's user. One remote call. Errors: unavailable.
[[nodiscard]] Result<void> set_comment_of_job(std::uint32_t job_id, std::string comment);

/// A step's own time limit, from slurmctld.
struct StepLimit {
  bool answered = true;  ///< false: slurmctld cannot be reached; libslurm tries for long (26.05: twenty seconds)
  std::optional<std::chrono::seconds> left = {};  ///< negative if it has passed; nullopt if there is no limit
};

/// Requests it. slurmctld forgets a step as soon as its last node is done (26.05: as soon as it has ended the step), so
/// call it before. One remote call.
[[nodiscard]] StepLimit limit_of_step(std::uint32_t job_id, std::uint32_t step_id);

/// The time until Slurm ends a step: by its own limit, or by the end of its job, which comes earlier once the job is
/// preempted with a grace time. Two remote calls.
[[nodiscard]] StepLimit time_left(std::uint32_t job_id, std::uint32_t step_id);

/// KillOnBadExit of slurm.conf; false if slurmctld does not answer. One remote call.
[[nodiscard]] bool kills_on_bad_exit_by_default();

/// Whether a parallel debugger controls this srun (MPIR): then slurmstepd traces the processes that it starts.
[[nodiscard]] bool is_being_debugged() noexcept;

/// SrunPortRange of slurm.conf, first and last port; nullopt if it is not set.
[[nodiscard]] std::optional<std::pair<std::uint16_t, std::uint16_t>> srun_port_range();

}  // namespace amldist::spank
