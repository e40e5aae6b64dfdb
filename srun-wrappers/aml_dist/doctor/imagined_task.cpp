#include "aml_dist/doctor/imagined_task.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text/natural_order.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;
using Variables = std::map<std::string, std::string, std::less<>>;

/// "2(x3),1" for the tasks of each node, in the order of the host list.
std::string tasks_per_node_text(const launch::TaskMap& map) {
  std::vector<std::uint32_t> counts(map.nodes(), 0);
  for (std::uint32_t rank = 0; rank < map.size(); ++rank) ++counts[map.node_of(rank)];
  std::string out;
  for (std::size_t i = 0; i < counts.size();) {
    std::size_t end = i;
    while (end < counts.size() && counts[end] == counts[i]) ++end;
    out += concat({out.empty() ? "" : ",", std::to_string(counts[i]),
                   end - i > 1 ? concat({"(x", std::to_string(end - i), ")"}) : ""});
    i = end;
  }
  return out;
}

/// Slurm sorts its lists by the order of its nodes, whatever the order in a host file.
std::string host_list(const launch::Placement& placement) {
  std::vector<std::string> hosts = placement.hosts.expand();
  if (placement.source == "host file") std::ranges::sort(hosts, natural_less);
  return text::join(std::vector<std::string_view>(hosts.begin(), hosts.end()), ",");
}

/// The variables that srun sets without us, as far as a framework reads them.
Variables slurm_variables(const tools::Explanation& step, const launch::Identity& identity, std::uint32_t job) {
  const launch::Placement& placement = step.plan.placement;
  const std::string nodes = std::to_string(identity.nodes);
  const std::string hosts = host_list(placement);
  const std::string tasks = std::to_string(identity.size);
  return {{"SLURM_JOB_ID", std::to_string(job)},
          {"SLURM_JOB_NAME", "train"},
          {"SLURM_STEP_ID", step.plan.step_name.substr(step.plan.step_name.find('.') + 1)},
          {"SLURM_PROCID", std::to_string(identity.rank)},
          {"SLURM_LOCALID", std::to_string(identity.local_rank)},
          {"SLURM_NODEID", std::to_string(placement.map.node_of(identity.rank))},
          {"SLURM_NTASKS", tasks},
          {"SLURM_NPROCS", tasks},
          {"SLURM_STEP_NUM_TASKS", tasks},
          {"SLURM_NNODES", nodes},
          {"SLURM_STEP_NUM_NODES", nodes},
          {"SLURM_JOB_NUM_NODES", nodes},
          {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node_text(placement.map)},
          {"SLURM_NODELIST", hosts},
          {"SLURM_JOB_NODELIST", hosts},
          {"SLURM_STEP_NODELIST", hosts},
          {"SLURMD_NODENAME", placement.host_of(identity.rank)}};
}

}  // namespace

Result<EnvironmentReader> imagined_task(const tools::Explanation& step, std::uint32_t rank, std::string mpi,
                                        std::uint32_t job) {
  const launch::TaskMap& map = step.plan.placement.map;
  if (rank >= map.size()) {
    return Error{Errc::invalid_argument, concat({"--task ", std::to_string(rank), " does not exist: the step has ",
                                                 text::count(map.size(), "task")})};
  }
  Variables variables = slurm_variables(step, identity_of(map, rank), job);
  if (mpi.empty()) mpi = step.plan.spec.kind == launch::Kind::mpi ? "pmix" : "none";
  if (mpi == "pmix") {
    variables["PMIX_RANK"] = std::to_string(rank);
    variables["PMIX_NAMESPACE"] = concat({"slurm.pmix.", step.plan.step_name});
  }
  const EnvironmentReader inherited = step.inherited(rank);
  const EnvironmentReader before = [variables, inherited](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional(found->second) : inherited(name);
  };
  auto patch = task_environment(step.plan, rank, before);
  if (!patch) return patch.error();
  return EnvironmentReader([patch = std::move(*patch), before](std::string_view name) -> std::optional<std::string> {
    if (!patch.mentions(name)) return before(name);
    const auto value = patch.value_of(name);
    return value ? std::optional<std::string>(*value) : std::nullopt;
  });
}

}  // namespace amldist::doctor
