// TensorFlow: TF_CONFIG, exactly as Azure ML writes it:
//   {"cluster":{"worker":["host0:2222","host1:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}
// Ranks take the roles chief, worker, ps, evaluator in this order. The evaluator is a task but not part of the cluster.
#include "base/text/text.hpp"
#include "launch/frameworks/tensorflow_roles.hpp"
#include "launch/frameworks/translator.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// "host:port" of a rank: the k-th task of a node listens on MASTER_PORT + k. Rank 0's node has the master's address,
/// the others are named by the same rule.
std::string endpoint(const TaskFacts& task, std::uint32_t rank) {
  const TaskMap& map = task.placement.map;
  const std::uint32_t node = map.node_of(rank);
  const std::string host =
      node == map.node_of(0) ? task.rendezvous.address : task.rendezvous.node_hosts.host_of(task.placement.hosts, node);
  const std::uint32_t port = task.rendezvous.port + map.local_rank_of(rank);
  return concat({"\"", host, ":", std::to_string(port), "\""});
}

/// Contains only host names and numbers, so nothing needs JSON escapes (Hostlist and is_host() reject quotes).
std::string config_text(const TaskFacts& task, const TensorflowRoles& roles) {
  using enum TensorflowRole;
  std::string cluster;
  std::string own;
  std::uint32_t rank = 0;
  for (const TensorflowRole role : {chief, worker, server, evaluator}) {
    if (roles.count(role) == 0) continue;
    const bool in_cluster = role != evaluator;
    std::string members;
    for (std::uint32_t index = 0; index < roles.count(role); ++index, ++rank) {
      if (rank == task.identity.rank) {
        own = concat({"{\"type\":\"", to_string(role), "\",\"index\":", std::to_string(index), "}"});
      }
      if (in_cluster) members += concat({members.empty() ? "" : ",", endpoint(task, rank)});
    }
    if (in_cluster) cluster += concat({cluster.empty() ? "" : ",", "\"", to_string(role), "\":[", members, "]"});
  }
  return concat({"{\"cluster\":{", cluster, "},\"task\":", own, ",\"environment\":\"cloud\"}"});
}

}  // namespace

Result<void> translate_tensorflow(const TaskFacts& task, EnvironmentPatch& patch) {
  const std::uint32_t most = task.placement.map.most_tasks_on_a_node();
  if (task.rendezvous.port + most - 1 > 65535) {
    return Error{Errc::mismatch, concat({"MASTER_PORT=", std::to_string(task.rendezvous.port), " leaves no ports for ",
                                         text::count(most, "task"), " on a node: give a master_port below ",
                                         std::to_string(65536 - most)})};
  }
  patch.set("TF_CONFIG", config_text(task, TensorflowRoles(task.spec.counts, task.identity.size)));
  return {};
}

}  // namespace amldist::launch
