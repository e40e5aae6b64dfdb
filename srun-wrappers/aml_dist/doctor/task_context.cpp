#include "aml_dist/doctor/task_context.hpp"

#include <algorithm>
#include <limits>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/visible_gpus.hpp"
#include "launch/rendezvous/stamp.hpp"

namespace amldist::doctor {
namespace {

Start start_of(const EnvironmentReader& environment) {
  // The first of the two alone is a leftover: it misleads Lightning, but there is no agent.
  if (environment("TORCHELASTIC_RUN_ID") && environment("TORCHELASTIC_RESTART_COUNT")) return Start::torchrun;
  if (environment("AMLDIST_HIDDEN_SLURM_STEP_ID") || environment("PET_NNODES")) return Start::per_node;
  if (environment(launch::stamp_variable) || environment("RANK")) return Start::per_process;
  return Start::unknown;
}

/// The stamp's kind, unless an outer step left the stamp.
std::optional<launch::Kind> kind_of(const EnvironmentReader& environment) {
  const auto stamp = launch::Stamp::read(environment);
  if (!stamp) return std::nullopt;
  const auto hidden = environment("AMLDIST_HIDDEN_SLURM_STEP_ID");
  const std::string step = hidden ? *hidden : environment("SLURM_STEP_ID").value_or("");
  const auto words = text::split(stamp->step(), '.');
  const bool same_job = words[0] == environment("SLURM_JOB_ID") || environment("SLURM_HET_SIZE");
  if (words.size() != 2 || !same_job || words[1] != step) return std::nullopt;
  for (const launch::Kind kind :
       {launch::Kind::pytorch, launch::Kind::mpi, launch::Kind::tensorflow, launch::Kind::jax, launch::Kind::ray}) {
    if (stamp->value_of("kind") == to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::vector<TasksRun> runs_of(const TaskContext& here) {
  const auto runs = parse_tasks_per_node(here.text("SLURM_STEP_TASKS_PER_NODE"));
  return runs ? *runs : std::vector<TasksRun>();
}

}  // namespace

TaskContext::TaskContext(EnvironmentReader environment, Machine machine)
    : environment_(std::move(environment)),
      machine_(std::move(machine)),
      start_(start_of(environment_)),
      kind_(kind_of(environment_)) {}

std::optional<std::uint64_t> TaskContext::number(std::string_view name) const {
  return text::to_number(text::trim(text(name)), std::numeric_limits<std::uint32_t>::max());
}

bool TaskContext::is_true(std::string_view name) const {
  const std::string word = text::to_lower(text(name));
  return word == "1" || word == "true" || word == "yes" || word == "on" || word == "y" || word == "t";
}

std::uint64_t TaskContext::tasks() const {
  if (const auto tasks = number("SLURM_STEP_NUM_TASKS")) return *tasks;
  if (const auto tasks = number("SLURM_NTASKS")) return *tasks;
  return 1;
}

std::uint64_t TaskContext::tasks_here() const {
  if (const auto gtids = environment_("SLURM_GTIDS")) return text::split(*gtids, ',').size();
  std::uint64_t node = number("SLURM_NODEID").value_or(0);
  for (const TasksRun& run : runs_of(*this)) {
    if (node < run.nodes) return run.tasks;
    node -= run.nodes;
  }
  return number("LOCAL_WORLD_SIZE").value_or(1);
}

std::uint64_t TaskContext::nodes() const {
  for (const std::string_view name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "GROUP_WORLD_SIZE"}) {
    if (const auto nodes = number(name)) return *nodes;
  }
  return 1;
}

bool TaskContext::is_uneven() const { return runs_of(*this).size() > 1; }

std::uint32_t TaskContext::gpus() const {
  return launch::visible_gpus(environment_).value_or(machine_.gpus.value_or(0));
}

std::string TaskContext::master() const {
  if (!has("MASTER_ADDR")) return {};
  return text::concat({text("MASTER_ADDR"), ":", text("MASTER_PORT")});
}

TaskContext TaskContext::changed(std::vector<EnvironmentPatch::Change> changes) const {
  return {[changes = std::move(changes), before = environment_](std::string_view name) -> std::optional<std::string> {
            const auto found = std::ranges::find(changes, name, &EnvironmentPatch::Change::name);
            return found != changes.end() ? found->value : before(name);
          },
          machine_};
}

bool is_loopback(std::string_view host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1" || host == "[::1]";
}

}  // namespace amldist::doctor
