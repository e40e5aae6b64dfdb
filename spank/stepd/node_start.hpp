// slurmstepd, before it forks the tasks, as root: reads the facts of its step, has the plan made, and applies it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/memory/shared_atomic.hpp"
#include "base/text/result.hpp"
#include "launch/rendezvous/port_claim.hpp"
#include "spank/server/step_server.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/slurm/step_request.hpp"
#include "spank/stepd/fabric_plan.hpp"
#include "spank/stepd/node_plan.hpp"
#include "spank/stepd/start_gate.hpp"
#include "spank/stepd/task_facts.hpp"

namespace amldist::spank {

/// The step does not concern the plugin: its tasks start as they would without the plugin.
struct NotConcerned {};
/// srun has refused the step and told the user why: no task starts.
struct RefusedBySrun {};

/// What a node's tasks need while they run, besides their plan.
struct NodeResources {
  std::vector<launch::PortClaim> claims = {};  ///< ports that this node's ranks will listen on
  std::optional<FabricPlan> fabric = {};       ///< nullopt: nobody wants the fabric verified
  std::string secret = {};                     ///< of the step, for its tasks alone; empty: srun sent none
};

/// Where a step has come to on this node before its tasks.
struct NodeStart {
  /// An Error: no task starts, and the user is told why; if its message is empty, he has read it.
  using Outcome = std::variant<NotConcerned, RefusedBySrun, Error, NodePlan>;
  Outcome outcome;
  NodeResources resources;
  std::unique_ptr<StepServer> stand_in = {};         ///< where no srun waits, on one node
  ServedStep served = {};                            ///< by it, once the step's output is there
  std::optional<StartGate> gate = {};                ///< holds the tasks until every node has reported
  std::optional<step::SrunLink> srun = {};           ///< the way to who answers for the step; nullopt: nobody does
  bool has_srun = true;                              ///< false: it had ended before the step, and a stand-in answers
  std::chrono::steady_clock::time_point begin = {};  ///< when the step came to this node
  AllTaskFacts tasks = {};                           ///< what each task tells of itself
  SharedAtomic<bool> task_refused;  ///< a task did not get its environment, and must not start. Shared with the tasks

  /// nullptr where the tasks get no environment.
  [[nodiscard]] const NodePlan* plan() const noexcept { return std::get_if<NodePlan>(&outcome); }
};

/// Returns an outcome and never a failure: a callback of slurmstepd that fails before task_init drains the node.
[[nodiscard]] NodeStart start_node(const StepRequest& request, const Handle& handle);

}  // namespace amldist::spank
