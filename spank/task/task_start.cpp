#include "spank/task/task_start.hpp"

#include <unistd.h>

#include <cstdlib>

#include "base/text/text.hpp"
#include "launch/frameworks/advice.hpp"
#include "launch/option/settings.hpp"
#include "launch/placement/identity.hpp"
#include "spank/slurm/output.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/task_trace.hpp"
#include "spank/task/task_monitor.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/step_secret.hpp"

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

Result<EnvironmentPatch> environment_of(const NodePlan& plan, const std::optional<step::SrunLink>& srun,
                                        const Handle& handle, std::uint32_t rank) {
  if (!plan.fabric) return task_environment(plan.step, rank, handle.environment());
  auto settings = verified_settings(*plan.fabric, srun, handle);
  if (!settings) return settings.error();
  launch::StepPlan step = plan.step;
  step.fabric_settings = std::move(*settings);
  return task_environment(step, rank, handle.environment());
}

Result<void> write_environment(const NodePlan& plan, const std::optional<step::SrunLink>& srun, const Handle& handle,
                               std::uint32_t rank) {
  auto patch = environment_of(plan, srun, handle, rank);
  if (patch) step::give_secret(plan.secret, handle.environment(), *patch);
  if (auto whole = handle.environment_was_read(); !whole) return whole.error();
  if (!patch) return patch.error();
  set_trace(plan, handle.program(), handle.environment(), *patch);
  patch->unset(step::launch_record_variable);
  patch->unset(step::report_variable);
  if (handle.variable(step::end_record_variable)) patch->unset(step::end_record_variable);
  if (plan.requires_secret) patch->set(launch::variable::secret, "require");
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

Result<void> prepare_task(const StepdSession& session, const Handle& handle) {
  if (const auto* const error = std::get_if<Error>(&session.outcome)) return *error;
  const NodePlan* const plan = session.plan();
  if (plan == nullptr) return {};
  const auto rank = rank_of_task(*plan, handle);
  if (!rank) return rank.error();
  if (*rank == 0) {
    for (const std::string& note : plan->notes) tell_step(note);
    advise(plan->step, handle.environment());
    if (const auto note = trace_note(*plan, handle)) tell_step(*note);
    if (const auto note = unwatched_note(*plan, session.has_srun && session.srun.has_value())) tell_step(*note);
  }
  if (!plan->no_stand_in.empty() && *rank == plan->ranks.front()) tell_step(plan->no_stand_in);
  if (auto written = write_environment(*plan, session.srun, handle, *rank); !written) return written;
  if (session.gate) {
    const auto opened = session.gate->wait(*session.srun, plan->step.placement.host_of(*rank), session.has_srun);
    if (!opened && opened.error().message.empty()) ::_exit(EXIT_FAILURE);  // srun has said why, and ends the step
    if (!opened) return opened;
  }
  if (session.srun && needs_task_monitor(plan->step, *rank)) return put_below_monitor(*session.srun, handle, *rank);
  return {};
}

}  // namespace

Result<void> start_task(const StepdSession& session, const Handle& handle) {
  // The user knows why, and Slurm would add two lines for each task.
  if (std::holds_alternative<RefusedBySrun>(session.outcome)) ::_exit(EXIT_FAILURE);
  auto equipped = prepare_task(session, handle);
  if (equipped) return equipped;
  const bool first = !session.task_refused.exchange(true);
  const std::string& why = equipped.error().message;  // empty: the user has read it
  if (first && !why.empty()) tell_step(why);          // one line per node, not one per task
  return equipped;
}

}  // namespace amldist::spank
