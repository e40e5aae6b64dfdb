#include "launch/placement/step_facts.hpp"

#include <algorithm>
#include <limits>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

constexpr std::uint64_t any_u32 = std::numeric_limits<std::uint32_t>::max();

std::optional<std::uint32_t> read_number(const EnvironmentReader& environment, std::string_view name) {
  const auto value = environment(name);
  if (!value) return std::nullopt;
  const auto number = text::to_number(*value, any_u32);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

Error missing(std::string_view name) {
  return {Errc::unavailable, concat({name, " is not set for this step: start the tasks with srun"})};
}

std::string_view word_for(Distribution::Kind kind) {
  switch (kind) {
    case Distribution::Kind::block:
      return "block";
    case Distribution::Kind::cyclic:
      return "cyclic";
    case Distribution::Kind::plane:
      return "plane";
    case Distribution::Kind::arbitrary:
      return "arbitrary";
  }
  return "unknown";
}

Result<void> check_counts(std::span<const TasksRun> counts, const SlurmNodeView& own_node) {
  std::uint64_t nodes = 0;
  std::uint64_t tasks = 0;
  for (const TasksRun& run : counts) {
    nodes += run.nodes;
    tasks += static_cast<std::uint64_t>(run.nodes) * run.tasks;
  }
  if (nodes == own_node.nodes && tasks == own_node.tasks) return {};
  return Error{Errc::mismatch, concat({"SLURM_STEP_TASKS_PER_NODE counts ", text::count(tasks, "task"), " on ",
                                       text::count(nodes, "node"), " but the step has ", std::to_string(own_node.tasks),
                                       " on ", std::to_string(own_node.nodes)})};
}

/// Derives the map from task counts and distribution, and names them as its source.
Result<Placement> derive(const EnvironmentReader& environment, Hostlist hosts, const SlurmNodeView& own_node) {
  const auto counts_text = environment("SLURM_STEP_TASKS_PER_NODE");
  if (!counts_text) return missing("SLURM_STEP_TASKS_PER_NODE");
  const auto counts = parse_tasks_per_node(*counts_text);
  if (!counts) return counts.error();
  // Checked first: the text comes from the user, and the time to build the map is proportional to the tasks.
  if (auto status = check_counts(*counts, own_node); !status) return status.error();
  const auto distribution =
      parse_distribution(environment("SLURM_DISTRIBUTION").value_or(""),
                         read_number(environment, "SLURM_DIST_PLANESIZE"), own_node.tasks, own_node.nodes);
  if (!distribution) return distribution.error();
  auto map = TaskMap::from_tasks_per_node(*counts, *distribution);
  if (!map) return map.error();
  return Placement{std::move(hosts), std::move(*map), Provenance::derived,
                   concat({"SLURM_STEP_TASKS_PER_NODE, ", word_for(distribution->kind)})};
}

Result<void> check_against(const Placement& placement, const SlurmNodeView& own_node) {
  const TaskMap& map = placement.map;
  if (placement.hosts.size() != own_node.nodes || map.nodes() != own_node.nodes) {
    return Error{Errc::mismatch,
                 concat({"the step has ", text::count(own_node.nodes, "node"), " but its node list names ",
                         std::to_string(placement.hosts.size()), " and its task map ", std::to_string(map.nodes())})};
  }
  if (map.size() != own_node.tasks) {
    return Error{Errc::mismatch, concat({"the step has ", text::count(own_node.tasks, "task"),
                                         " but its task map places ", std::to_string(map.size())})};
  }
  if (!std::ranges::equal(map.ranks_on(own_node.node), own_node.ranks)) {
    return Error{Errc::mismatch,
                 concat({"the task map from ", placement.source, " does not match the tasks that Slurm placed on ",
                         placement.hosts.at(own_node.node)})};
  }
  return {};
}

}  // namespace

std::string_view to_string(Provenance provenance) noexcept {
  switch (provenance) {
    case Provenance::exact:
      return "exact";
    case Provenance::derived:
      return "derived";
    case Provenance::given:
      return "given";
  }
  return "unknown";
}

JobName read_job_name(const EnvironmentReader& environment, std::uint32_t job_id) {
  return {environment("SLURM_CLUSTER_NAME").value_or(""), read_number(environment, "SLURM_HET_JOB_ID").value_or(job_id),
          read_number(environment, "SLURM_RESTART_COUNT").value_or(0)};
}

Result<Placement> read_placement(const EnvironmentReader& environment, const std::optional<std::string>& exact_map,
                                 const SlurmNodeView& own_node) {
  const auto nodes_text = environment("SLURM_STEP_NODELIST");
  if (!nodes_text) return missing("SLURM_STEP_NODELIST");
  auto hosts = Hostlist::parse(*nodes_text);
  if (!hosts) return hosts.error();
  auto placement = [&]() -> Result<Placement> {
    if (!exact_map) return derive(environment, std::move(*hosts), own_node);
    auto map = TaskMap::parse(*exact_map, own_node.tasks, own_node.nodes);
    if (!map) return map.error();
    return Placement{std::move(*hosts), std::move(*map), Provenance::exact, "slurmctld's step layout"};
  }();
  if (!placement) return placement.error();
  if (auto status = check_against(*placement, own_node); !status) return status.error();
  return placement;
}

}  // namespace amldist::launch
