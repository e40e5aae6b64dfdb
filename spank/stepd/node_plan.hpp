// slurmstepd, before it forks the tasks, as root: what they will get.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/text/result.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/rendezvous/port_claim.hpp"
#include "launch/site/trace_policy.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/stepd/fabric_plan.hpp"

namespace amldist::spank {

struct StepdSession;

/// What this node's tasks get.
struct NodePlan {
  launch::StepPlan step;
  bool is_whole_step = true;  ///< false: Slurm gives this slurmstepd only a component of a heterogeneous step
  std::vector<launch::PortClaim> claims;  ///< ports that this node's ranks will listen on
  std::vector<std::string> notes;         ///< lines for the user, told by rank 0
  std::optional<FabricPlan> fabric;       ///< nullopt: nobody wants the fabric verified
  std::string secret;                     ///< of the step, for its tasks alone; empty: srun sent none
  std::string host;                       ///< this node's name
  std::vector<std::uint32_t> ranks;       ///< of this node; empty where they are not known yet
  launch::TraceChoice trace;              ///< whether the tasks' calls are recorded
  std::string trace_libraries;            ///< folder of what is loaded into them for it; empty: not installed
  bool requires_secret = false;           ///< the site wants libamldist to refuse worlds without a secret
  std::string no_stand_in = {};           ///< line for the user: no srun waits, and this node cannot stand in for it
};

/// The step does not concern the plugin: its tasks start as they would without the plugin.
struct NotConcerned {};
/// srun has refused the step and told the user why: no task starts.
struct RefusedBySrun {};

/// What planning comes to. An Error: no task starts, and the user is told why; if its message is empty, he has read it.
using PlanOutcome = std::variant<NotConcerned, RefusedBySrun, Error, NodePlan>;

/// Reads srun's record and the step's facts and makes the plan. The outcome is kept in the session and not returned,
/// because a callback of slurmstepd that fails before task_init drains the node.
void plan_step(StepdSession& session, const Handle& handle);

}  // namespace amldist::spank
