// slurmstepd, and the task that it forks.
#include "core/text.hpp"
#include "rendezvous/launch_record.hpp"
#include "spank/contexts.hpp"
#include "spank/report.hpp"
#include "spank/slurm_api.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// What SPANK's items say about this node's part of the step.
struct NodeItems {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::uint32_t node = 0;
  std::uint32_t nodes = 0;
  std::uint32_t tasks = 0;
  std::vector<std::uint32_t> ranks;
};

Result<NodeItems> read_items(const Handle& handle) {
  NodeItems items;
  struct Field {
    spank_item_t item;
    const char* name;
    std::uint32_t* value;
  };
  std::uint32_t local_tasks = 0;
  const Field fields[] = {
      {S_JOB_ID, "S_JOB_ID", &items.job_id},
      {S_JOB_STEPID, "S_JOB_STEPID", &items.step_id},
      {S_JOB_NODEID, "S_JOB_NODEID", &items.node},
      {S_JOB_NNODES, "S_JOB_NNODES", &items.nodes},
      {S_JOB_TOTAL_TASK_COUNT, "S_JOB_TOTAL_TASK_COUNT", &items.tasks},
      {S_JOB_LOCAL_TASK_COUNT, "S_JOB_LOCAL_TASK_COUNT", &local_tasks},
  };
  for (const Field& field : fields) {
    const auto number = handle.number(field.item, field.name);
    if (!number) return number.error();
    *field.value = *number;
  }
  if (local_tasks == 0 || local_tasks > items.tasks || items.node >= items.nodes) {
    return Error{Errc::mismatch, "Slurm's numbers for this node's part of the step contradict each other"};
  }
  items.ranks.reserve(local_tasks);
  for (std::uint32_t local = 0; local < local_tasks; ++local) {
    const auto rank = handle.global_rank(local);
    if (!rank) return rank.error();
    items.ranks.push_back(*rank);
  }
  return items;
}

Result<LaunchRecord> read_record(const EnvironmentReader& environment, const NodeItems& items) {
  const auto text = environment(launch_record_variable);
  const auto not_ours = [](std::string_view why) {
    return Error{Errc::unavailable, concat({why, ": the srun that starts the step needs the aml-dist plugin too"})};
  };
  if (!text) return not_ours("srun sent no launch record");
  auto record = LaunchRecord::parse(*text);
  if (!record) return record.error();
  if (record->job_id != items.job_id || record->step_id != items.step_id) {
    return not_ours("the launch record belongs to another step");
  }
  return record;
}

Result<StepPlan> make_plan(const Spec& spec, const NodeItems& items, const EnvironmentReader& environment,
                           std::vector<std::string>& notes) {
  auto record = read_record(environment, items);
  if (!record) return record.error();
  const NodeTruth truth{items.node, items.nodes, items.tasks, items.ranks};
  auto placement = read_placement(environment, record->map, truth);
  if (!placement) return placement.error();
  if (auto counts = check_counts(spec, placement->map); !counts) return counts.error();
  const RendezvousFacts facts{record->address, record->ports, read_job_name(environment, items.job_id), items.step_id};
  auto rendezvous = settle(spec, facts, environment, notes);
  if (!rendezvous) return rendezvous.error();
  return StepPlan{spec, std::move(*placement), std::move(*rendezvous),
                  concat({std::to_string(items.job_id), ".", std::to_string(items.step_id)})};
}

/// Batch, interactive and extern steps start no ranks.
bool starts_ranks(const Handle& handle) {
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  return step_id && *step_id <= SLURM_MAX_NORMAL_STEP_ID;
}

/// Slurm's own numbers for the task, which a heterogeneous step counts over all its components.
Result<void> check_global_numbers(const StepPlan& plan, std::uint32_t rank, const Handle& handle) {
  const auto number = [&handle](std::string_view name) -> std::optional<std::uint64_t> {
    const auto value = handle.variable(name);
    return value ? text::to_number(*value, most_tasks) : std::nullopt;
  };
  const auto procid = number("SLURM_PROCID");
  const auto ntasks = number("SLURM_NTASKS");
  const bool same = (!procid || *procid == rank) && (!ntasks || *ntasks == plan.placement.map.size());
  if (same) return {};
  return Error{Errc::unavailable,
               "heterogeneous steps (srun A : B) are not supported: start the components with one srun each, or drop "
               "--aml-dist"};
}

Result<void> write_environment(const Session& session, const Handle& handle, std::uint32_t rank) {
  const StepPlan& plan = *session.plan;
  if (auto numbers = check_global_numbers(plan, rank, handle); !numbers) return numbers.error();
  const auto patch = task_environment(plan, rank, handle.environment());
  if (!patch) return patch.error();
  EnvironmentPatch whole = *patch;
  whole.unset(launch_record_variable);
  return handle.apply(whole);
}

}  // namespace

void plan_step(Session& session, const Handle& handle) {
  if (!session.option || session.policy.disabled || !starts_ranks(handle)) return;
  const auto planned = [&]() -> Result<void> {
    const auto spec = session.spec();
    if (!spec) return spec.error();
    if (spec->kind == Kind::none) return {};
    const auto items = read_items(handle);
    if (!items) return items.error();
    session.job_id = items->job_id;
    session.step_id = items->step_id;
    auto plan = make_plan(*spec, *items, handle.environment(), session.notes);
    if (!plan) return plan.error();
    session.plan = std::move(*plan);
    return {};
  }();
  if (!planned) session.failure = planned.error();
}

Result<void> start_task(const Session& session, const Handle& handle) {
  const auto local = handle.number(S_TASK_ID, "S_TASK_ID");
  const bool speaker = !local || *local == 0;  // one line per node, not one per task
  const auto refused = [speaker](const Error& error) {
    if (speaker) tell_step(error.message);
    return error;
  };
  if (session.failure) return refused(*session.failure);
  if (!session.plan) return {};
  const auto rank = handle.number(S_TASK_GLOBAL_ID, "S_TASK_GLOBAL_ID");
  if (!rank) return refused(rank.error());
  if (*rank >= session.plan->placement.map.size()) {
    return refused({Errc::mismatch, "Slurm started a task that the step's task map does not have"});
  }
  if (*rank == 0) {
    for (const std::string& note : session.notes) tell_step(note);
  }
  if (auto written = write_environment(session, handle, *rank); !written) return refused(written.error());
  return {};
}

void finish_task(Session& session) noexcept {
  if (!session.failure || session.step_ended) return;
  session.step_ended = true;
  // Its tasks on this node never started; without this the others would wait for them to the end of their time limit.
  static_cast<void>(end_step(session.job_id, session.step_id));
}

}  // namespace amldist::spank
