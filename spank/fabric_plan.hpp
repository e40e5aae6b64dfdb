// slurmstepd's part of the fabric's verification, by rdma=require|prefer|off.
//
// Before the fork, as root: what sysfs tells about the node. In the tasks, as the user: one of them, the leader, runs
// the installed aml-dist for what only the user's process can tell (device nodes, memory limit, verbs), sends its
// node's vote to srun, and passes on to the others what all nodes agreed on. With `off` nothing of this happens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/result.hpp"
#include "core/spec.hpp"
#include "fabric/node_part.hpp"
#include "os/shared_atomic.hpp"
#include "site/site_policy.hpp"
#include "spank/handle.hpp"
#include "spank/srun_link.hpp"

namespace amldist::spank {

/// What all nodes of a step agreed on.
enum class FabricDecision : int { none_yet, use_fabric, use_sockets, refused };

/// What slurmstepd knows before it forks its tasks.
struct FabricPlan {
  RdmaPolicy policy = RdmaPolicy::off;
  std::string sku;
  std::string helper;  ///< absolute path of aml-dist; empty: not found
  std::string host;
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  fabric::NodePart node_part;
  SharedAtomic<bool> has_leader;          ///< set by the task that becomes it
  SharedAtomic<FabricDecision> decision;  ///< set by the leader, for the node's other tasks
};

/// The node part, for a step whose policy is not off: a few milliseconds, five seconds at most.
[[nodiscard]] FabricPlan plan_fabric(const SitePolicy& site, RdmaPolicy policy, const std::string& sku,
                                     const Handle& handle);

/// In a task: does the leader's work, or waits for the leader's decision. Returns the settings for the task, or an
/// error: the task must not start. If its message is empty, the user has read why.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> verified_settings(
    const FabricPlan& plan, const std::optional<SrunLink>& srun, const Handle& handle);

}  // namespace amldist::spank
