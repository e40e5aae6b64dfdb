#include "aml_dist/doctor/doctor.hpp"

#include <algorithm>
#include <cstdio>

#include "aml_dist/doctor/imagined_task.hpp"
#include "aml_dist/doctor/machine.hpp"
#include "aml_dist/doctor/report.hpp"
#include "aml_dist/doctor/saved_environment.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using commands::fail;
using doctor::TaskContext;
using text::concat;

/// --env NAME=VALUE and --env NAME.
Result<std::vector<EnvironmentPatch::Change>> changes_of(const std::vector<std::string>& variables) {
  std::vector<EnvironmentPatch::Change> changes;
  for (const std::string& text : variables) {
    const std::size_t equals = text.find('=');
    if (text.empty() || equals == 0) {
      return Error{Errc::invalid_argument,
                   concat({"--env ", text::quote(text), ": give NAME=VALUE, or NAME to remove it"})};
    }
    if (equals == std::string::npos) changes.push_back({text, std::nullopt});
    else changes.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return changes;
}

Result<TaskContext> imagined_context(const DoctorOptions& options) {
  auto step = explain_layout(options.step);
  if (!step) return step.error();
  auto environment = doctor::imagined_task(*step, options.step.task.value_or(0), options.mpi, options.step.job);
  if (!environment) return environment.error();
  doctor::Machine machine = doctor::look_at_python(own_variable);
  machine.host_of_rank_zero = step->plan.placement.master_host();
  return TaskContext(std::move(*environment), std::move(machine));
}

/// The task that runs this program, unless it is not part of a step.
Result<TaskContext> own_context() {
  if (!own_variable("SLURM_PROCID") && !own_variable("RANK") && !own_variable("TF_CONFIG")) {
    return Error{Errc::invalid_argument,
                 "this process is not a task of a step: run it with srun, or give --nodelist and --tasks-per-node, or "
                 "--env-file"};
  }
  return TaskContext(own_variable, doctor::look_at_machine(own_variable));
}

Result<TaskContext> context_of(const DoctorOptions& options) {
  const bool imagined = describes_a_layout(options.step.layout);
  if (imagined && !options.env_file.empty()) {
    return Error{Errc::invalid_argument, "--env-file and a layout cannot be combined"};
  }
  if (imagined) return imagined_context(options);
  if (!options.step.option.empty() || options.step.task || !options.mpi.empty()) {
    return Error{Errc::invalid_argument,
                 "--aml-dist, --task and --mpi are about an imagined step: give --nodelist and --tasks-per-node too"};
  }
  if (options.env_file.empty()) return own_context();
  auto environment = doctor::read_saved_environment(options.env_file);
  if (!environment) return environment.error();
  doctor::Machine machine = doctor::look_at_python(*environment);
  return TaskContext(std::move(*environment), std::move(machine));
}

/// srun would not start such a step.
doctor::FrameworkResult refusal(const Error& error) {
  return {.framework = "aml-dist", .launcher = "srun", .outcome = doctor::Outcome::fails, .reason = error.message};
}

int print(const std::vector<doctor::FrameworkResult>& results, bool json) {
  const std::string text = json ? doctor::to_json(results) : doctor::to_text(results);
  std::fputs(text.c_str(), stdout);
  const bool sick = std::ranges::any_of(results, [](const auto& result) { return doctor::is_bad(result.outcome); });
  return sick ? commands::exit_failed : commands::exit_done;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  const auto changes = changes_of(options.variables);
  if (!changes) return fail(changes.error());
  const auto found = context_of(options);
  if (!found) {
    if (found.error().code != Errc::mismatch) return fail(found.error());
    return print(std::vector{refusal(found.error())}, options.step.json);
  }
  const auto results = doctor::examine(found->changed(*changes), options.selection);
  if (!results) return fail(results.error());
  return print(*results, options.step.json);
}

}  // namespace amldist::tools
