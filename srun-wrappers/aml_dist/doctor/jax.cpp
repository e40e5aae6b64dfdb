// jax.distributed.initialize() without arguments (jax/_src/distributed.py and clusters/, 0.10): the coordinator from
// JAX_COORDINATOR_ADDRESS or a detector; process count and id always from a detector: Open MPI's mpirun, then Slurm.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

/// The first host as JAX reads the list: the text before the first bracket and the first number in it.
std::string jax_first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const std::string rest = list.substr(end + 1);
  return list.substr(0, end) + rest.substr(0, rest.find_first_of(",-"));
}

/// The coordinator by JAX's own rule, without JAX_COORDINATOR_ADDRESS.
std::string own_rule_address(const TaskContext& here) {
  const std::string port = here.has("JAX_COORDINATOR_PORT")
                               ? here.text("JAX_COORDINATOR_PORT")
                               : std::to_string(here.number("SLURM_JOB_ID").value_or(0) % 4096 + 61440);
  return concat({jax_first_host(here.text("SLURM_STEP_NODELIST")), ":", port});
}

/// Compares SLURM_NTASKS with Slurm's other variables of the step.
std::optional<Problem> wrong_count(const TaskContext& here, std::uint64_t size) {
  const std::uint64_t tasks = here.tasks();
  if (size == tasks) return std::nullopt;  // in a heterogeneous step both are those of all components
  return Problem{size > tasks ? Outcome::hangs : Outcome::alone,
                 concat({"SLURM_NTASKS=", std::to_string(size), " but the step has ", text::count(tasks, "task")}),
                 "leave SLURM_NTASKS to Slurm"};
}

/// Follows from the source; not tried on GPUs.
std::optional<Problem> device_problem(const TaskContext& here) {
  const std::uint64_t gpus = here.gpus();
  const std::uint64_t local = here.number("SLURM_LOCALID").value_or(0);
  if (gpus == 0 || local < gpus || !here.text("JAX_LOCAL_DEVICE_IDS").empty()) return std::nullopt;
  return Problem{Outcome::fails,
                 concat({"JAX takes device ", std::to_string(local), " (SLURM_LOCALID), but the task sees ",
                         text::count(gpus, "GPU")}),
                 "srun --aml-dist=jax, which sets JAX_LOCAL_DEVICE_IDS"};
}

/// Tried with JAX 0.10 on CPUs: one such node connects to the others, two never to each other.
std::optional<Problem> collectives_problem(const TaskContext& here) {
  if (here.nodes() == 1 || here.gpus() > 0 || here.machine().own_name_is_loopback != true) return std::nullopt;
  return Problem{
      Outcome::warns,
      "this node's own name is loopback in /etc/hosts: one such node works; with a second one JAX waits for ever, or "
      "says: Gloo context initialization failed (it does not read GLOO_SOCKET_IFNAME)",
      "give the node's name its real address in /etc/hosts"};
}

FrameworkResult from_open_mpi(const TaskContext& here, FrameworkResult result) {
  result.environment = "OmpiCluster";
  for (const std::string_view name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    if (here.has(name)) continue;
    return with(result, {Outcome::fails,
                         concat({"OMPI_MCA_orte_hnp_uri makes it ask for Open MPI's names: KeyError: '", name, "'"}),
                         "unset OMPI_MCA_orte_hnp_uri"});
  }
  result.rank = here.number("OMPI_COMM_WORLD_RANK");
  result.size = here.number("OMPI_COMM_WORLD_SIZE");
  return result;
}

FrameworkResult from_slurm(const TaskContext& here, FrameworkResult result) {
  result.environment = "SlurmCluster";
  result.rank = here.number("SLURM_PROCID");
  result.size = here.number("SLURM_NTASKS");
  if (result.master.empty()) {
    result.master = own_rule_address(here);
    const std::string host = jax_first_host(here.text("SLURM_STEP_NODELIST"));
    if (auto problem = first_host_problem(here, "JAX", "SLURM_STEP_NODELIST", host, "srun --aml-dist=jax")) {
      return with(result, std::move(*problem));
    }
  }
  if (result.rank && result.size && *result.rank >= *result.size) {
    return with(result,
                {Outcome::fails,
                 "ValueError: process_id and num_processes must be nonnegative, with process_id < num_processes",
                 "unset SLURM_NTASKS before srun"});
  }
  if (auto problem = wrong_count(here, result.size.value_or(0))) return with(result, std::move(*problem));
  if (auto problem = device_problem(here)) return with(result, std::move(*problem));
  if (auto problem = collectives_problem(here)) return with(result, std::move(*problem));
  return result;
}

}  // namespace

FrameworkResult examine_jax(const TaskContext& here) {
  constexpr std::array<std::string_view, 5> five = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS",
                                                    "SLURM_PROCID", "SLURM_LOCALID"};
  FrameworkResult result{.master = here.text("JAX_COORDINATOR_ADDRESS")};
  if (!result.master.empty() && result.master.find(':') == std::string::npos) {
    return with(result, {Outcome::fails, "JAX_COORDINATOR_ADDRESS has no port: IndexError: list index out of range",
                         "JAX_COORDINATOR_ADDRESS=HOST:PORT, or leave it to --aml-dist=jax"});
  }
  if (here.nodes() > 1 && is_loopback(result.master.substr(0, result.master.rfind(':')))) {
    return with(result, {Outcome::hangs, "JAX_COORDINATOR_ADDRESS names a different machine on each node",
                         "unset JAX_COORDINATOR_ADDRESS"});
  }
  if (auto problem = foreign_master(here, result.master.substr(0, result.master.rfind(':'))))
    return with(result, std::move(*problem));
  if (here.has("OMPI_MCA_orte_hnp_uri")) return from_open_mpi(here, std::move(result));
  const auto* const missing = std::ranges::find_if(five, [&](std::string_view name) { return !here.has(name); });
  if (missing == five.end()) return from_slurm(here, std::move(result));
  return with(result, {Outcome::fails,
                       concat({result.master.empty() ? "ValueError: coordinator_address should be defined."
                                                     : "ValueError: Number of processes must be defined.",
                               " (", *missing, " is not set)"}),
                       "srun --aml-dist=jax"});
}

}  // namespace amldist::doctor
