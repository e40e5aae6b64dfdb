// TensorFlow: TF_CONFIG in exactly Azure ML's shape,
//   {"cluster":{"worker":["host0:2222","host1:2222"]},"task":{"type":"worker","index":0},"environment":"cloud"}
// Ranks take the roles chief, worker, ps, evaluator in this order; the evaluator is a task but not in the cluster.
#include <array>

#include "core/text.hpp"
#include "frameworks/translator.hpp"

namespace amldist {
namespace {

using text::concat;

struct Role {
  std::string_view name;
  std::uint32_t count;
};

std::array<Role, 4> roles_of(const CountAssertions& counts, std::uint32_t tasks) {
  const std::uint32_t chiefs = counts.chiefs.value_or(0);
  const std::uint32_t servers = counts.parameter_servers.value_or(0);
  const std::uint32_t evaluators = counts.evaluators.value_or(0);
  const std::uint32_t workers = counts.workers.value_or(tasks - chiefs - servers - evaluators);
  return {Role{"chief", chiefs}, Role{"worker", workers}, Role{"ps", servers}, Role{"evaluator", evaluators}};
}

/// "host:port" of a rank: the k-th task of a node listens on MASTER_PORT + k; rank 0 has the master's address.
std::string endpoint(const TaskFacts& task, std::uint32_t rank) {
  const std::string host = rank == 0 ? task.rendezvous.address : task.placement.host_of(rank);
  const std::uint32_t port = task.rendezvous.port + task.placement.map.local_rank_of(rank);
  return concat({"\"", host, ":", std::to_string(port), "\""});
}

/// Host names and numbers only: nothing in it needs JSON's escapes (Hostlist and is_host() keep quotes out).
std::string config_text(const TaskFacts& task, const std::array<Role, 4>& roles) {
  std::string cluster;
  std::string own;
  std::uint32_t rank = 0;
  for (const Role& role : roles) {
    if (role.count == 0) continue;
    const bool in_cluster = role.name != "evaluator";
    std::string members;
    for (std::uint32_t index = 0; index < role.count; ++index, ++rank) {
      if (rank == task.identity.rank) {
        own = concat({"{\"type\":\"", role.name, "\",\"index\":", std::to_string(index), "}"});
      }
      if (in_cluster) members += concat({members.empty() ? "" : ",", endpoint(task, rank)});
    }
    if (in_cluster) cluster += concat({cluster.empty() ? "" : ",", "\"", role.name, "\":[", members, "]"});
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
  patch.set("TF_CONFIG", config_text(task, roles_of(task.spec.counts, task.identity.size)));
  return {};
}

}  // namespace amldist
