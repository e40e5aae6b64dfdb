// What this node's tasks will get: computed from facts alone, before slurmstepd forks them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/os/answer_as_user.hpp"
#include "base/text/result.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/rendezvous/name_target.hpp"
#include "launch/site/trace_policy.hpp"
#include "spank/slurm/step_reader.hpp"
#include "spank/stepd/fabric_plan.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// What a node has read before it plans.
struct NodeFacts {
  NodeItems items = {};
  UserRights user = {};
  StepReading step;
  bool has_srun = true;                       ///< false: no srun waits for the step
  std::string trace_libraries = {};           ///< folder of what is loaded into tasks for a trace; empty: not installed
  std::vector<IpAddress> own_addresses = {};  ///< of this node, by which others reach it
  std::string own_name = {};                  ///< as gethostname() has it
  /// Where a name or an address leads on this node.
  std::function<launch::NameTarget(const std::string& name)> target_of = {};
  std::optional<IpAddress> peer = {};  ///< another node's address; nullopt: no other node, or Slurm knows no address
  std::string interface_to_peer = {};  ///< empty: not known
  Result<IpAddress> address_of_stand_in = IpAddress();  ///< where no srun waits: of the node that stands in for it
};

/// What this node's tasks get, and what slurmstepd has to do for them.
struct NodePlan {
  launch::StepPlan step;
  bool is_whole_step = true;  ///< false: Slurm gives this slurmstepd only a component of a heterogeneous step
  std::uint32_t node = 0;     ///< this node's place in the step
  std::string host = {};      ///< its name
  std::vector<std::uint32_t> ranks = {};        ///< of this node; empty where only its tasks will know
  std::vector<std::uint16_t> ports = {};        ///< to claim, because this node's ranks will listen there
  std::vector<std::string> notes = {};          ///< lines for the user, told by rank 0
  std::string note_without_gpus = {};           ///< likewise, if it sees no GPU; empty: nothing
  std::optional<FabricWishes> fabric = {};      ///< nullopt: nobody wants the fabric verified
  launch::TraceChoice trace = {};               ///< whether the tasks' calls are recorded
  std::string trace_libraries = {};             ///< as in the facts
  bool requires_secret = false;                 ///< the site wants libamldist to refuse worlds without a secret
  std::optional<step::SrunLink> stand_in = {};  ///< where a node answers because no srun waits
  bool stands_in = false;                       ///< that node is this one
  std::string no_stand_in = {};  ///< no srun waits and this node cannot stand in for it: a line for the user
};

/// The plan of a node of a step that has a kind. Pure but for facts.target_of, which it asks only about names whose
/// targets decide something. Errors: mismatch, invalid_argument or unavailable, with a
/// sentence for the user.
[[nodiscard]] Result<NodePlan> plan_node(const NodeFacts& facts, const launch::Spec& spec,
                                         const launch::SitePolicy& site, const EnvironmentReader& environment);

/// The line for the user where there is no stand-in.
[[nodiscard]] std::string no_stand_in(const launch::StepPlan& plan, std::string_view why);

}  // namespace amldist::spank
