#include "shared/allocation.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::commands {
namespace {

constexpr std::uint64_t most_tasks = UINT32_MAX;

std::optional<std::uint64_t> number_in(std::string_view text) {
  const auto number = text::to_number(text, most_tasks);
  return number && *number > 0 ? std::optional(*number) : std::nullopt;
}

/// The number of nodes that srun would use: those asked for (N or MIN-MAX), at most those of the allocation; by default
/// all of it.
std::optional<std::uint64_t> nodes_of(const SlurmOptions& step) {
  auto allocated = own_variable("SLURM_NNODES");
  if (!allocated) allocated = own_variable("SLURM_JOB_NUM_NODES");
  const auto all = allocated ? number_in(*allocated) : std::nullopt;
  if (!step.has("nodes")) return all;
  const std::string_view asked = step.value_of("nodes");
  const auto dash = asked.find('-');
  if (dash == std::string_view::npos) return number_in(asked);
  const auto most = number_in(asked.substr(dash + 1));
  return most && all ? std::min(most, all) : most;
}

}  // namespace

void count_tasks(SlurmOptions& step) {
  if (step.has("ntasks") || !(own_variable("SLURM_NTASKS") || own_variable("SLURM_NPROCS"))) return;
  const auto each = number_in(step.value_of("ntasks-per-node"));
  const auto nodes = nodes_of(step);
  if (!each || !nodes || *each * *nodes > most_tasks) return;
  const bool range = step.value_of("nodes").find('-') != std::string_view::npos;
  if (range) step.set("nodes", std::to_string(*nodes));  // of MIN-MAX srun would use MIN
  step.set("ntasks", std::to_string(*each * *nodes));
}

Result<JobContext> find_job_context() {
  if (!own_variable("SLURM_JOB_ID")) return JobContext::outside;
  auto step = own_variable("SLURM_STEP_ID");
  if (!step) step = own_variable("AMLDIST_HIDDEN_SLURM_STEP_ID");
  // Steps that Slurm itself makes (batch, interactive) have the highest ids.
  if (!step || !text::to_number(*step, 0xfffffff0U)) return JobContext::allocation;
  const std::string tasks = own_variable("SLURM_STEP_NUM_TASKS").value_or("1");
  if (tasks == "1") return JobContext::task;
  return Error{Errc::invalid_argument,
               text::concat({"this command starts a whole step; under srun it would start one in each of ", tasks,
                             " tasks: run it without srun"})};
}

}  // namespace amldist::commands
