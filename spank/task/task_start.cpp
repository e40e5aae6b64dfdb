#include "spank/task/task_start.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "base/text/text.hpp"
#include "launch/frameworks/advice.hpp"
#include "launch/frameworks/visible_gpus.hpp"
#include "launch/option/settings.hpp"
#include "launch/placement/identity.hpp"
#include "spank/slurm/output.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/task_trace.hpp"
#include "spank/task/task_monitor.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/step_secret.hpp"
#include "step/messages/stop_files.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// The task's rank over the whole step. SPANK's own number counts within a component, SLURM_PROCID over all of them.
Result<std::uint32_t> rank_of_task(const NodePlan& plan, const Handle& handle) {
  const auto in_component = handle.number(S_TASK_GLOBAL_ID, "S_TASK_GLOBAL_ID");
  if (!in_component) return in_component.error();
  const launch::TaskMap& map = plan.step.placement.map;
  const auto procid = text::to_number(handle.variable("SLURM_PROCID").value_or(""), most_tasks);
  const auto rank = plan.is_whole_step ? *in_component : static_cast<std::uint32_t>(procid.value_or(map.size()));
  const bool agrees = rank < map.size() && (!procid || *procid == rank);
  if (!agrees) return Error{Errc::mismatch, "Slurm started a task that the step's task map does not have"};
  const auto host = handle.variable("SLURMD_NODENAME");
  if (host && *host != plan.step.placement.host_of(rank)) {
    return Error{Errc::mismatch, concat({"the step's task map has rank ", std::to_string(rank), " on ",
                                         plan.step.placement.host_of(rank), " but it runs on ", text::quote(*host)})};
  }
  return rank;
}

Result<EnvironmentPatch> environment_of(const NodeStart& node, const Handle& handle, std::uint32_t rank) {
  launch::StepPlan step = node.plan()->step;
  if (node.resources.fabric) {
    auto settings = verified_settings(*node.resources.fabric, node.srun, handle);
    if (!settings) return settings.error();
    step.fabric_settings = std::move(*settings);
  }
  return task_environment(step, rank, handle.environment());
}

constexpr const char* propagated_memlock = "SLURM_RLIMIT_MEMLOCK";

/// Registering memory for RDMA needs locked memory, of which a login shell's soft limit, propagated by srun, allows
/// next to nothing: the task gets its hard limit. Slurm sets the propagated one after this, so that is taken away.
void raise_locked_memory(EnvironmentPatch& patch, const EnvironmentReader& environment) {
  if (environment(propagated_memlock)) patch.unset(propagated_memlock);
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_MEMLOCK, &limit));
}

/// When the step came to this node.
std::chrono::system_clock::time_point came_at(const NodeStart& node) {
  const auto ago = std::chrono::steady_clock::now() - node.begin;
  return std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(ago);
}

/// The stop file and the signal of stop=; what an outer step left goes.
void set_stop(const NodeStart& node, std::uint32_t rank, const EnvironmentReader& environment,
              EnvironmentPatch& patch) {
  const NodePlan& plan = *node.plan();
  for (const std::string_view name : {launch::variable::stop_file, launch::variable::stop_signal})
    if (environment(name)) patch.unset(name);
  if (!plan.step.spec.stop) return;
  const int signal = plan.step.spec.stop->signal;
  const bool is_first = !plan.ranks.empty() && rank == plan.ranks.front();
  const auto files = step::StopFiles::of_step(plan.step.step_name);
  const auto begun = files && is_first ? files->begin(signal, came_at(node)) : Result<void>();
  if (!files || !begun) {
    if (is_first)
      tell_step(concat({"stop: no stop file on this node: ", files ? begun.error().message : files.error().message}));
    return;
  }
  patch.set(launch::variable::stop_file, files->stop);
  if (signal != 0) patch.set(launch::variable::stop_signal, static_cast<std::uint64_t>(signal));
}

Result<void> write_environment(const NodeStart& node, const Handle& handle, std::uint32_t rank) {
  auto patch = environment_of(node, handle, rank);
  const bool wants_rdma = node.resources.fabric && node.resources.fabric->policy != launch::RdmaPolicy::off;
  if (patch && wants_rdma) raise_locked_memory(*patch, handle.environment());
  if (patch) step::give_secret(node.resources.secret, handle.environment(), *patch);
  if (auto status = handle.environment_was_read(); !status) return status.error();
  if (!patch) return patch.error();
  set_trace(*node.plan(), handle.environment(), *patch);
  set_stop(node, rank, handle.environment(), *patch);
  patch->unset(step::launch_record_variable);
  if (handle.variable(step::end_record_variable)) patch->unset(step::end_record_variable);
  if (node.plan()->requires_secret) patch->set(launch::variable::secret, "require");
  return handle.apply(*patch);
}

/// Warnings that only one task is to print: rank 0.
void advise(const launch::StepPlan& plan, const EnvironmentReader& environment) {
  const launch::Identity identity = identity_of(plan.placement.map, 0);
  if (const auto advice = gpu_advice(plan.spec, identity, environment)) tell_step(*advice);
  if (const auto advice = mpi_advice(plan.spec, identity, environment)) tell_step(*advice);
}

/// Leaves a task monitor between Slurm and the program, which from here on is its child.
Result<void> put_below_monitor(const step::SrunLink& srun, const Handle& handle, std::uint32_t rank) {
  if (!start_task_monitor(srun)) {
    tell_step(concat({"rank ", std::to_string(rank), " will not end when the step's work is done, because the process ",
                      "that would end it could not be started: raise ulimit -u, or end the step yourself"}));
    return {};
  }
  EnvironmentPatch patch;
  patch.set("SLURM_TASK_PID", static_cast<std::uint64_t>(::getpid()));
  return handle.apply(patch);
}

/// The lines that rank 0 tells the user.
void tell_notes(const NodeStart& node, const Handle& handle) {
  const NodePlan& plan = *node.plan();
  for (const std::string& note : plan.notes) tell_step(note);
  const bool sees_gpus = launch::visible_gpus(handle.environment()).value_or(0) > 0;
  if (!plan.note_without_gpus.empty() && !sees_gpus) tell_step(plan.note_without_gpus);
  advise(plan.step, handle.environment());
  if (const auto note = trace_note(plan, handle)) tell_step(*note);
  if (const auto note = unwatched_note(plan, node.has_srun && node.srun.has_value())) tell_step(*note);
}

/// The last task of rank 0's node to come here says what does not belong together.
void tell_places(const NodeStart& node, const Handle& handle, std::uint32_t rank) {
  const launch::StepPlan& step = node.plan()->step;
  const auto local = handle.number(S_TASK_ID, "S_TASK_ID");
  if (!local || !note_task(node.tasks, *local, identity_of(step.placement.map, rank), handle.environment())) return;
  for (const std::string& line : lines_about_places(node.tasks, node.plan()->host, step.spec.verbose)) tell_step(line);
}

Result<void> prepare_task(const NodeStart& node, const Handle& handle) {
  if (const auto* const error = std::get_if<Error>(&node.outcome)) return *error;
  const NodePlan* const plan = node.plan();
  if (plan == nullptr) return {};
  const auto rank = rank_of_task(*plan, handle);
  if (!rank) return rank.error();
  if (*rank == 0) tell_notes(node, handle);
  tell_places(node, handle, *rank);
  if (!plan->no_stand_in.empty() && *rank == plan->ranks.front()) tell_step(plan->no_stand_in);
  if (auto written = write_environment(node, handle, *rank); !written) return written;
  if (node.gate) {
    const auto opened = node.gate->wait(*node.srun, plan->step.placement.host_of(*rank), node.has_srun);
    if (!opened && opened.error().message.empty()) ::_exit(EXIT_FAILURE);  // srun has said why, and ends the step
    if (!opened) return opened;
  }
  const bool is_ended = needs_task_monitor(plan->step.spec, plan->step.placement.map.size(), *rank);
  return node.srun && is_ended ? put_below_monitor(*node.srun, handle, *rank) : Result<void>();
}

}  // namespace

Result<void> start_task(const NodeStart& node, const Handle& handle) {
  // The user knows why, and Slurm would add two lines for each task.
  if (std::holds_alternative<RefusedBySrun>(node.outcome)) ::_exit(EXIT_FAILURE);
  auto prepared = prepare_task(node, handle);
  if (prepared) return prepared;
  const bool first = !node.task_refused.exchange(true);
  const std::string& why = prepared.error().message;  // empty: the user has read it
  if (first && !why.empty()) tell_step(why);          // one line per node, not one per task
  return prepared;
}

}  // namespace amldist::spank
