// slurmstepd's part of the fabric's verification, by rdma=require|prefer|off.
//
// Before the fork, as root: the node part (sysfs). In the tasks, as the user: one of them, the leader, runs the
// installed aml-dist in a process of its own for what only the user's context can tell (device nodes, memory limit,
// verbs), votes at srun, and lets the others know what all nodes agreed on. With `off` nothing of this happens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/result.hpp"
#include "core/spec.hpp"
#include "fabric/node_part.hpp"
#include "site/site_policy.hpp"
#include "spank/handle.hpp"
#include "spank/shared_flag.hpp"
#include "spank/shared_verdict.hpp"
#include "spank/srun_link.hpp"

namespace amldist::spank {

/// What slurmstepd knows before its tasks.
struct FabricPlan {
  RdmaPolicy policy = RdmaPolicy::off;
  std::string sku;
  std::string helper;  ///< absolute path of aml-dist; empty: not found
  std::string host;
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  fabric::NodePart node_part;
  SharedFlag has_leader;  ///< raised by the task that does the work for its node
  SharedVerdict verdict;  ///< what it came to
};

/// The node part, for a step whose policy is not off: a few milliseconds, five seconds at most.
[[nodiscard]] FabricPlan plan_fabric(const SitePolicy& site, RdmaPolicy policy, const std::string& sku,
                                     const Handle& handle);

/// In a task: waits for the verdict of its step, or, as the leader, brings it about. The settings for the task; an
/// error without a message when the task must not start and its user has read why.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> verified_settings(
    const FabricPlan& plan, const std::optional<SrunLink>& srun, const Handle& handle);

}  // namespace amldist::spank
