#include "spank/step_reader.hpp"

#include <algorithm>
#include <limits>

#include "core/text.hpp"
#include "rendezvous/launch_record.hpp"
#include "rendezvous/master_address.hpp"
#include "spank/slurm_api.hpp"

namespace amldist::spank {
namespace {

using text::concat;

std::optional<std::uint32_t> read_number(const EnvironmentReader& environment, std::string_view name) {
  const auto number = text::to_number(environment(name).value_or(""), std::numeric_limits<std::uint32_t>::max());
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
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

Result<StepReading> read_from_record(const NodeItems& items, const EnvironmentReader& environment) {
  auto record = read_record(environment, items);
  if (!record) return record.error();
  auto placement = read_placement(environment, record->map, {items.node, items.nodes, items.tasks, items.ranks});
  if (!placement) return placement.error();
  return StepReading{std::move(*placement), std::move(record->address), std::move(record->ports), items.job_id};
}

HeterogeneousHint read_hint(const NodeItems& items, const EnvironmentReader& environment) {
  // "pack" is what releases up to 20.02 called it; srun that allocates for itself still sets only those names (22.05).
  auto leader = read_number(environment, "SLURM_JOB_ID_HET_GROUP_0");
  if (!leader) leader = read_number(environment, "SLURM_JOB_ID_PACK_GROUP_0");
  return {leader.value_or(items.job_id), read_number(environment, "SLURM_HET_SIZE").value_or(0)};
}

/// srun's record reaches one component only, so every node of every component asks slurmctld and comes to the same
/// result.
Result<StepReading> read_from_controller(const Spec& spec, const SitePolicy& policy, const NodeItems& items,
                                         std::uint32_t tasks, const EnvironmentReader& environment) {
  const HeterogeneousHint hint = read_hint(items, environment);
  auto placement = fetch_heterogeneous_layout(items.job_id, items.step_id, tasks, hint);
  if (!placement) return placement.error();
  auto address = choose_master_address(spec, policy, *placement, this_machine(slurm_node_address));
  if (!address) return address.error();
  return StepReading{std::move(*placement), std::move(*address), policy.ports.without(kernel_ports()), hint.leader_job};
}

}  // namespace

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

Result<StepReading> read_step(const Spec& spec, const SitePolicy& policy, const NodeItems& items,
                              const EnvironmentReader& environment) {
  const auto whole = read_number(environment, "SLURM_STEP_NUM_TASKS");
  if (whole && *whole > items.tasks) return read_from_controller(spec, policy, items, *whole, environment);
  return read_from_record(items, environment);
}

}  // namespace amldist::spank
