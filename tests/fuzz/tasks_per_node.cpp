// SLURM_STEP_TASKS_PER_NODE and SLURM_DISTRIBUTION, and the map of ranks that follows from them.
#include "base/text/tasks_per_node.hpp"

#include "base/text/hostlist.hpp"
#include "fuzz.hpp"
#include "task_map_invariants.hpp"

namespace amldist::fuzz::tasks_per_node {
namespace {

std::string written(const std::vector<TasksRun>& runs) {
  std::string out;
  for (const TasksRun& run : runs) {
    if (!out.empty()) out += ',';
    out += std::to_string(run.tasks) + "(x" + std::to_string(run.nodes) + ")";
  }
  return out;
}

void check_runs(const std::vector<TasksRun>& runs) {
  std::uint64_t nodes = 0;
  std::uint64_t tasks = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    require(runs[i].nodes > 0 && runs[i].tasks > 0, "no run is empty");
    require(i == 0 || runs[i].tasks != runs[i - 1].tasks, "equal neighbours are one run");
    nodes += runs[i].nodes;
    tasks += std::uint64_t{runs[i].nodes} * runs[i].tasks;
  }
  require(nodes <= Hostlist::most_hosts && tasks <= most_tasks, "limits are kept");
  const auto again = parse_tasks_per_node(written(runs));
  require(again && *again == runs, "runs that are written out are the same");
}

}  // namespace

const std::string_view separator = ",";

/// The distribution in the first line, the counts behind it.
void try_input(std::string_view input) {
  Input lines(input);
  const std::string_view distribution_text = lines.line();
  const std::string_view counts = lines.rest();
  const auto runs = within(counts.size() * 64 + 4096, [counts] { return parse_tasks_per_node(counts); });
  if (!runs) return require_sentence(runs.error().message);
  check_runs(*runs);
  std::uint64_t nodes = 0;
  std::uint64_t tasks = 0;
  for (const TasksRun& run : *runs) {
    nodes += run.nodes;
    tasks += std::uint64_t{run.nodes} * run.tasks;
  }
  const auto distribution = launch::parse_distribution(distribution_text, std::nullopt, tasks, nodes);
  if (!distribution) return require_sentence(distribution.error().message);
  if (tasks > most_ranks_checked) return;
  const auto map = launch::TaskMap::from_tasks_per_node(*runs, *distribution);
  if (!map) return require_sentence(map.error().message);
  require(map->size() == tasks && map->nodes() == nodes, "the map has the tasks and nodes that were counted");
  check_map(*map);
}

}  // namespace amldist::fuzz::tasks_per_node
