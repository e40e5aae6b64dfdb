#include "aml_run/job_shape.hpp"

#include <array>
#include <cstdint>
#include <optional>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/placement/task_map.hpp"

namespace amldist::run {
namespace {

constexpr std::uint64_t most_checked_tasks = 1U << 20U;  // larger steps are left to Slurm

std::optional<std::uint32_t> number_of(const commands::SlurmOptions& job, std::string_view name) {
  const auto number = text::to_number(job.value_of(name), most_checked_tasks);
  return number && *number > 0 ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::uint32_t tasks_of_roles(const launch::CountAssertions& counts) {
  return counts.workers.value_or(0) + counts.parameter_servers.value_or(0) + counts.chiefs.value_or(0) +
         counts.evaluators.value_or(0);
}

/// The layout, if the options determine it as far as the counts need.
std::optional<TasksRun> layout_of(const launch::Spec& spec, const commands::SlurmOptions& job) {
  const auto nodes = number_of(job, "nodes");
  const auto per_node = number_of(job, "ntasks-per-node");
  const auto tasks = number_of(job, "ntasks");
  if (nodes && per_node && !job.has("ntasks")) return TasksRun{*nodes, *per_node};
  const bool about_nodes =
      spec.counts.nodes || spec.counts.processes_per_node || spec.launch == launch::Launch::per_node;
  if (tasks && !about_nodes) return TasksRun{1, *tasks};
  return std::nullopt;
}

}  // namespace

void complete_shape(const launch::Spec& spec, commands::SlurmOptions& job) {
  if (job.has("ntasks")) return;
  const std::uint32_t roles =
      spec.kind == launch::Kind::tensorflow && spec.counts.workers ? tasks_of_roles(spec.counts) : 0;
  if (roles > 0 && !job.has("ntasks-per-node")) {
    job.set("ntasks", std::to_string(roles));
    return;
  }
  if (!job.has("nodes")) job.set("nodes", "1");
  if (!job.has("ntasks-per-node")) job.set("ntasks-per-node", "1");
}

std::optional<launch::StepShape> shape_of(const commands::SlurmOptions& job) {
  const auto nodes = number_of(job, "nodes");
  const auto each = number_of(job, "ntasks-per-node");
  const auto tasks = number_of(job, "ntasks");
  if (!nodes || (!tasks && (!each || std::uint64_t{*nodes} * *each > most_checked_tasks))) return std::nullopt;
  return tasks ? launch::StepShape{*tasks, *nodes, (*tasks + *nodes - 1) / *nodes}
               : launch::StepShape{*nodes * *each, *nodes, *each};
}

Result<void> check_shape(const launch::Spec& spec, const commands::SlurmOptions& job) {
  if (spec.kind == launch::Kind::none) return {};
  const auto layout = layout_of(spec, job);
  if (!layout || std::uint64_t{layout->nodes} * layout->tasks > most_checked_tasks) return {};
  const auto map = launch::TaskMap::from_tasks_per_node({&*layout, 1}, launch::Distribution{});
  return map ? check_counts(spec, *map) : Result<void>();
}

}  // namespace amldist::run
