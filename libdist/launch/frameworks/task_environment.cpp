#include "launch/frameworks/task_environment.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text/text.hpp"
#include "launch/frameworks/translator.hpp"
#include "launch/option/settings.hpp"
#include "launch/placement/identity.hpp"
#include "launch/rendezvous/stamp.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// The first names identify a process and its peers. A value from outside the step is never right, so each is set or
/// removed. Only an aml-dist step of another kind sets the others: they are removed if its stamp is present.
constexpr std::array<std::string_view, 29> names = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "TF_CONFIG",
    "JAX_COORDINATOR_ADDRESS",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "AZ_BATCH_MASTER_NODE",
    "AZ_BATCHAI_MPI_MASTER_NODE",
    "AZ_BATCH_HOST_LIST",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MASTER_ADDRESS",
    "JAX_LOCAL_DEVICE_IDS",
    "RAY_ADDRESS",
    "AZUREML_NODE_COUNT",
    "AZUREML_CR_NODE_RANK",
    "AMLDIST_BACKEND",
};
constexpr std::span identity_names = std::span(names).first<21>();
constexpr std::span leftover_names = std::span(names).subspan<21>();

/// Variables that make frameworks treat a process as a rank of Slurm or PMIx, and the names under which they are saved.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> rank_clues = {{
    {"SLURM_NTASKS", "AMLDIST_HIDDEN_SLURM_NTASKS"},
    {"SLURM_NPROCS", "AMLDIST_HIDDEN_SLURM_NPROCS"},
    {"SLURM_STEP_ID", "AMLDIST_HIDDEN_SLURM_STEP_ID"},
    {"PMIX_RANK", "AMLDIST_HIDDEN_PMIX_RANK"},
    {"PMIX_NAMESPACE", "AMLDIST_HIDDEN_PMIX_NAMESPACE"},
}};

Translator translator_for(Kind kind) {
  switch (kind) {
    case Kind::pytorch:
      return translate_pytorch;
    case Kind::mpi:
      return translate_mpi;
    case Kind::tensorflow:
      return translate_tensorflow;
    case Kind::jax:
      return translate_jax;
    case Kind::ray:
      return translate_ray;
    case Kind::none:
      break;
  }
  return nullptr;
}

void remove_leftovers(const EnvironmentReader& inherited, EnvironmentPatch& patch) {
  for (const std::string_view name : identity_names) {
    if (inherited(name)) patch.unset(name);
  }
  if (!inherited(stamp_variable)) return;
  for (const std::string_view name : leftover_names) {
    if (inherited(name)) patch.unset(name);
  }
}

void set_common(const TaskFacts& task, EnvironmentPatch& patch) {
  const Rendezvous& meet = task.rendezvous;
  patch.set("MASTER_ADDR", meet.address);
  patch.set("MASTER_PORT", meet.port);
  patch.set("NODE_RANK", task.identity.node_rank);
  patch.set("AZ_BATCH_MASTER_NODE", concat({meet.address, ":", std::to_string(meet.port)}));
  if (task.spec.launch == Launch::per_process) {
    patch.set("WORLD_SIZE", task.identity.size);
    patch.set("RANK", task.identity.rank);
    patch.set("LOCAL_RANK", task.identity.local_rank);
    patch.set("LOCAL_WORLD_SIZE", task.identity.local_size);
  }
}

/// Lightning compares SLURM_NTASKS_PER_NODE with its number of devices. srun does not set it, or passes on the batch
/// job's.
void set_tasks_per_node(const TaskFacts& task, EnvironmentPatch& patch) {
  if (const auto tasks = task.placement.map.uniform_tasks_per_node()) patch.set("SLURM_NTASKS_PER_NODE", *tasks);
  else patch.unset("SLURM_NTASKS_PER_NODE");
}

void hide_rank_clues(const TaskFacts& task, EnvironmentPatch& patch) {
  if (task.spec.launch != Launch::per_node || task.spec.slurm_env != SlurmEnv::hide) return;
  for (const auto& [name, copy] : rank_clues) {
    if (auto value = task.inherited(name)) {
      patch.set(copy, std::move(*value));
      patch.unset(name);
    }
  }
}

/// Gloo resolves the host's own name. If that gives loopback, Gloo must be told the interface.
void set_gloo_interface(const StepPlan& plan, const EnvironmentReader& inherited, EnvironmentPatch& patch) {
  const bool stale = inherited("GLOO_SOCKET_IFNAME") && !users_own(inherited, "GLOO_SOCKET_IFNAME");
  if (stale) patch.unset("GLOO_SOCKET_IFNAME");
  const bool free = stale || !inherited("GLOO_SOCKET_IFNAME");
  if (free && !plan.gloo_interface.empty()) patch.set("GLOO_SOCKET_IFNAME", plan.gloo_interface);
}

/// Names that StepPlan::fabric_settings may contain.
constexpr std::array<std::string_view, 6> fabric_names = {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE",
                                                          "UCX_TLS",     variable::rdma,      variable::rdma_sku};

/// Removes what an outer step left behind, then sets what the user has not set.
void set_fabric(const StepPlan& plan, const EnvironmentReader& inherited, EnvironmentPatch& patch) {
  if (inherited(stamp_variable)) {
    for (const std::string_view name : fabric_names) {
      if (inherited(name) && !users_own(inherited, name)) patch.unset(name);
    }
  }
  for (const auto& [name, value] : plan.fabric_settings) {
    if (!inherited(name) || patch.mentions(name)) patch.set(name, value);
  }
}

/// Most blocks of a task map that is written into the stamp: a few hundred bytes, written within microseconds.
constexpr std::size_t most_stamped_blocks = 64;

void set_own_names(const StepPlan& plan, EnvironmentPatch& patch) {
  const Placement& placement = plan.placement;
  Stamp stamp(plan.step_name);
  stamp.add("kind", to_string(plan.spec.kind));
  stamp.add("nodes", std::to_string(placement.map.nodes()));
  // Only the map distinguishes a component from the whole step, and shows the order of a host file.
  const bool short_map = placement.map.blocks().size() <= most_stamped_blocks;
  if (placement.in_node_order && short_map) stamp.add("map", placement.map.to_string());
  for (const std::string_view name : {"MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"}) {
    if (const auto value = patch.value_of(name)) stamp.add(name, *value);
  }
  for (const auto& [name, value] : plan.fabric_settings) {
    if (const auto set = patch.value_of(name)) stamp.add(name, *set);
  }
  patch.set(stamp_variable, stamp.to_string());
}

Result<void> check_lengths(const EnvironmentPatch& patch) {
  for (const auto& change : patch.changes()) {
    const std::size_t length = change.name.size() + (change.value ? change.value->size() : 0) + 2;
    if (length <= longest_environment_string) continue;
    return Error{Errc::limit,
                 concat({change.name, " would be ", std::to_string(length), " bytes long, but Linux allows ",
                         std::to_string(longest_environment_string), " for one variable: use fewer tasks or nodes"})};
  }
  return {};
}

Error count_mismatch(std::string_view key, std::uint32_t asked, std::string_view is, std::string_view remedy) {
  return {Errc::mismatch, concat({key, "=", std::to_string(asked), " but ", is, ": ", remedy, " or drop ", key})};
}

Result<void> check_roles(const CountAssertions& counts, std::uint32_t tasks) {
  const std::uint64_t others =
      std::uint64_t{counts.chiefs.value_or(0)} + counts.evaluators.value_or(0) + counts.parameter_servers.value_or(0);
  const std::uint64_t named = others + counts.workers.value_or(0);
  const bool adds_up = named == tasks || (!counts.workers && named < tasks);
  const std::uint64_t leaders =
      counts.chiefs.value_or(0) + (counts.workers ? *counts.workers : tasks - std::min<std::uint64_t>(others, tasks));
  if (adds_up && leaders == 0) {
    return Error{Errc::mismatch, "no task is left for a worker or a chief: use more tasks or fewer servers"};
  }
  if (adds_up) return {};
  return Error{Errc::mismatch, concat({"the task counts add up to ", text::count(named, "task"), " but the step has ",
                                       text::count(tasks, "task"), ": use srun -n", std::to_string(named),
                                       " or correct worker_count and the other counts"})};
}

}  // namespace

std::span<const std::string_view> task_variables() noexcept { return names; }

Result<void> check_counts(const Spec& spec, const TaskMap& map) {
  const CountAssertions& counts = spec.counts;
  if (counts.nodes && *counts.nodes != map.nodes()) {
    return count_mismatch("node_count", *counts.nodes, concat({"the step has ", text::count(map.nodes(), "node")}),
                          concat({"use srun -N", std::to_string(*counts.nodes)}));
  }
  if (counts.processes && *counts.processes != map.size()) {
    return count_mismatch("process_count", *counts.processes,
                          concat({"the step has ", text::count(map.size(), "task")}),
                          concat({"use srun -n", std::to_string(*counts.processes)}));
  }
  if (counts.processes_per_node) {
    const auto uniform = map.uniform_tasks_per_node();
    if (uniform != counts.processes_per_node) {
      const std::string is = uniform ? concat({"every node has ", text::count(*uniform, "task")})
                                     : concat({"the nodes have different numbers of tasks, up to ",
                                               std::to_string(map.most_tasks_on_a_node())});
      return count_mismatch(counts.processes_per_node_key, *counts.processes_per_node, is,
                            concat({"use srun --ntasks-per-node=", std::to_string(*counts.processes_per_node)}));
    }
  }
  if (spec.kind == Kind::ray && map.most_tasks_on_a_node() > 1) {
    return Error{
        Errc::mismatch,
        concat({"kind ray starts one Ray on each node but a node has ", text::count(map.most_tasks_on_a_node(), "task"),
                ": use srun --ntasks-per-node=1, and --cpus-per-task=N for the CPUs that Ray may use"})};
  }
  if (spec.launch == Launch::per_node && map.most_tasks_on_a_node() > 1) {
    return Error{Errc::mismatch,
                 concat({"launch=per-node starts one launcher per node but a node has ",
                         text::count(map.most_tasks_on_a_node(), "task"),
                         ": use srun --ntasks-per-node=1 and nproc_per_node=N, or launch=per-process"})};
  }
  if (spec.kind == Kind::tensorflow) return check_roles(counts, map.size());
  return {};
}

EnvironmentPatch own_variables(const EnvironmentReader& environment) {
  EnvironmentPatch own;
  const auto copy = [&](std::string_view name) {
    if (auto value = environment(name)) own.set(name, std::move(*value));
  };
  for (const std::string_view name : identity_names) copy(name);
  for (const std::string_view name : leftover_names) copy(name);
  for (const auto& [name, hidden] : rank_clues) copy(hidden);
  copy("SLURM_NTASKS_PER_NODE");
  if (!users_own(environment, "GLOO_SOCKET_IFNAME")) copy("GLOO_SOCKET_IFNAME");
  copy(stamp_variable);
  return own;
}

EnvironmentPatch without_outer_step(const EnvironmentReader& environment) {
  EnvironmentPatch patch;
  if (!environment(stamp_variable)) return patch;
  const auto is_users = [&](std::string_view name) {
    return (name == "MASTER_ADDR" || name == "MASTER_PORT") && users_own(environment, name);
  };
  const EnvironmentPatch own = own_variables(environment);
  for (const auto& change : own.changes()) {
    if (change.name != "SLURM_NTASKS_PER_NODE" && !is_users(change.name)) patch.unset(change.name);
  }
  for (const std::string_view name : fabric_names) {
    if (environment(name) && !users_own(environment, name)) patch.unset(name);
  }
  return patch;
}

bool has_outer_tasks_per_node(const EnvironmentReader& environment) {
  // A launcher, which has no LOCAL_WORLD_SIZE, is its node's only task.
  return environment(stamp_variable) &&
         environment("SLURM_NTASKS_PER_NODE") == environment("LOCAL_WORLD_SIZE").value_or("1");
}

Result<EnvironmentPatch> task_environment(const StepPlan& plan, std::uint32_t rank,
                                          const EnvironmentReader& inherited) {
  const Translator translate = translator_for(plan.spec.kind);
  if (translate == nullptr) return EnvironmentPatch{};
  const Identity identity = identity_of(plan.placement.map, rank);
  const TaskFacts task{plan.spec, plan.placement, plan.rendezvous, identity, inherited};
  EnvironmentPatch patch;
  remove_leftovers(inherited, patch);
  set_common(task, patch);
  if (auto status = translate(task, patch); !status) return status.error();
  set_tasks_per_node(task, patch);
  hide_rank_clues(task, patch);
  set_gloo_interface(plan, inherited, patch);
  set_fabric(plan, inherited, patch);
  set_own_names(plan, patch);
  if (auto status = check_lengths(patch); !status) return status.error();
  return patch;
}

}  // namespace amldist::launch
