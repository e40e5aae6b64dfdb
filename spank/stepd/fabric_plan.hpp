// slurmstepd's part of the verification of a step's nodes, by rdma=require|prefer|off and health=require|prefer|off.
//
// Before the fork, as root: what sysfs tells about the node. In the tasks, as the user: one of them, the leader, runs
// the installed aml-dist for what only the user's process can tell (device nodes, memory limit, verbs, GPUs) and for
// the writes to other nodes (rdma_pairs=), sends its node's vote to srun, and passes on to the others what all nodes
// agreed on. With both `off` nothing of this happens.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/shared_atomic.hpp"
#include "base/text/result.hpp"
#include "fabric/node_part.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/site/site_policy.hpp"
#include "spank/slurm/handle.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// What all nodes of a step agreed on.
enum class FabricDecision : int { none_yet, use_fabric, use_sockets, refused };

/// What slurmstepd knows before it forks its tasks.
struct FabricPlan {
  launch::RdmaPolicy policy = launch::RdmaPolicy::off;
  launch::RdmaPolicy health = launch::RdmaPolicy::off;
  launch::RdmaPairs pairs = launch::RdmaPairs::off;
  bool unknown_fails = false;
  std::chrono::seconds silence{0};  ///< how long the leader waits without an answer from srun, or from its stand-in
  std::string sku;
  std::string site_file;  ///< that names the site's own checks; empty if the site has no such checks
  std::string helper;     ///< absolute path of aml-dist; empty: not found
  std::string host;
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  std::string peers;  ///< this node and those that it writes to: "0=node1,1=node2"
  fabric::NodePart node_part;
  SharedAtomic<pid_t> leader;             ///< the task that has become it; 0: none yet
  SharedAtomic<FabricDecision> decision;  ///< set by the leader, for the node's other tasks
};

/// What a step's policies ask for.
struct FabricWishes {
  launch::RdmaPolicy policy = launch::RdmaPolicy::off;
  launch::RdmaPolicy health = launch::RdmaPolicy::off;
  launch::RdmaPairs pairs = launch::RdmaPairs::off;
  std::string sku;
};

/// A node's place among those of its step.
struct NodeAmong {
  std::uint32_t node = 0;
  const launch::Placement& placement;

  [[nodiscard]] std::uint32_t nodes() const { return placement.map.nodes(); }
  [[nodiscard]] std::string name_of(std::uint32_t other) const { return placement.hosts.at(other); }
};

/// The node part, for a step whose policies are not all off: a few milliseconds, five seconds at most.
[[nodiscard]] FabricPlan plan_fabric(const launch::SitePolicy& site, const FabricWishes& wishes, const NodeAmong& own,
                                     const Handle& handle);

/// In a task: does the leader's work, or waits for the leader's decision. Returns the settings for the task, or an
/// error: the task must not start. If its message is empty, the user has read why.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> verified_settings(
    const FabricPlan& plan, const std::optional<step::SrunLink>& srun, const Handle& handle);

}  // namespace amldist::spank
