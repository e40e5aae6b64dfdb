// jax.distributed.initialize() without arguments (jax/_src/distributed.py and clusters/, 0.10): the coordinator from
// JAX_COORDINATOR_ADDRESS or a detector; process count and id always from a detector: Open MPI's mpirun, then Slurm.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

/// The first host as JAX reads the list: what stands before the first bracket and the first number in it, and no more.
std::string jax_first_host(const std::string& list) {
  const std::size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const std::string rest = list.substr(end + 1);
  return list.substr(0, end) + rest.substr(0, rest.find_first_of(",-"));
}

/// The coordinator by JAX's own rule, without JAX_COORDINATOR_ADDRESS.
std::string own_rule_address(const Surroundings& here) {
  const std::string port = here.has("JAX_COORDINATOR_PORT")
                               ? here.text("JAX_COORDINATOR_PORT")
                               : std::to_string(here.number("SLURM_JOB_ID").value_or(0) % 4096 + 61440);
  return concat({jax_first_host(here.text("SLURM_STEP_NODELIST")), ":", port});
}

/// SLURM_NTASKS against what else Slurm says of the step.
std::optional<Trouble> wrong_count(const Surroundings& here, std::uint64_t size) {
  const std::uint64_t tasks = here.tasks();
  if (size == tasks) return std::nullopt;  // in a heterogeneous step both are those of all components
  return Trouble{size > tasks ? Verdict::hangs : Verdict::alone,
                 concat({"SLURM_NTASKS=", std::to_string(size), " but the step has ", text::count(tasks, "task")}),
                 "leave SLURM_NTASKS to Slurm"};
}

/// Read, not proven on GPUs.
std::optional<Trouble> device_trouble(const Surroundings& here) {
  const std::uint64_t gpus = here.gpus();
  const std::uint64_t local = here.number("SLURM_LOCALID").value_or(0);
  if (gpus == 0 || local < gpus || !here.text("JAX_LOCAL_DEVICE_IDS").empty()) return std::nullopt;
  return Trouble{Verdict::fails,
                 concat({"JAX takes device ", std::to_string(local), " (SLURM_LOCALID), but the task sees ",
                         text::count(gpus, "GPU")}),
                 "srun --aml-dist=jax, which sets JAX_LOCAL_DEVICE_IDS"};
}

std::optional<Trouble> collectives_trouble(const Surroundings& here) {
  if (here.nodes() == 1 || here.gpus() > 0 || here.machine().own_name_is_loopback != true) return std::nullopt;
  return Trouble{
      Verdict::fails,
      "this node's own name is loopback in /etc/hosts: Gloo context initialization failed (JAX does not read "
      "GLOO_SOCKET_IFNAME)",
      "give the node's name its real address in /etc/hosts"};
}

Finding from_open_mpi(const Surroundings& here, Finding finding) {
  finding.environment = "OmpiCluster";
  for (const std::string_view name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    if (here.has(name)) continue;
    return with(finding, {Verdict::fails,
                          concat({"OMPI_MCA_orte_hnp_uri makes it ask for Open MPI's names: KeyError: '", name, "'"}),
                          "unset OMPI_MCA_orte_hnp_uri"});
  }
  finding.rank = here.number("OMPI_COMM_WORLD_RANK");
  finding.size = here.number("OMPI_COMM_WORLD_SIZE");
  return finding;
}

Finding from_slurm(const Surroundings& here, Finding finding) {
  finding.environment = "SlurmCluster";
  finding.rank = here.number("SLURM_PROCID");
  finding.size = here.number("SLURM_NTASKS");
  if (finding.master.empty()) {
    finding.master = own_rule_address(here);
    const std::string host = jax_first_host(here.text("SLURM_STEP_NODELIST"));
    if (auto trouble = first_host_trouble(here, "JAX", "SLURM_STEP_NODELIST", host, "srun --aml-dist=jax")) {
      return with(finding, std::move(*trouble));
    }
  }
  if (finding.rank && finding.size && *finding.rank >= *finding.size) {
    return with(finding,
                {Verdict::fails,
                 "ValueError: process_id and num_processes must be nonnegative, with process_id < num_processes",
                 "unset SLURM_NTASKS before srun"});
  }
  if (auto trouble = wrong_count(here, finding.size.value_or(0))) return with(finding, std::move(*trouble));
  if (auto trouble = device_trouble(here)) return with(finding, std::move(*trouble));
  if (auto trouble = collectives_trouble(here)) return with(finding, std::move(*trouble));
  return finding;
}

}  // namespace

Finding examine_jax(const Surroundings& here) {
  constexpr std::array<std::string_view, 5> five = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS",
                                                    "SLURM_PROCID", "SLURM_LOCALID"};
  Finding finding{.master = here.text("JAX_COORDINATOR_ADDRESS")};
  if (!finding.master.empty() && finding.master.find(':') == std::string::npos) {
    return with(finding, {Verdict::fails, "JAX_COORDINATOR_ADDRESS has no port: IndexError: list index out of range",
                          "JAX_COORDINATOR_ADDRESS=HOST:PORT, or leave it to --aml-dist=jax"});
  }
  if (here.nodes() > 1 && is_loopback(finding.master.substr(0, finding.master.rfind(':')))) {
    return with(finding, {Verdict::hangs, "JAX_COORDINATOR_ADDRESS is another machine on each node",
                          "unset JAX_COORDINATOR_ADDRESS"});
  }
  if (here.has("OMPI_MCA_orte_hnp_uri")) return from_open_mpi(here, std::move(finding));
  const auto* const missing = std::ranges::find_if(five, [&](std::string_view name) { return !here.has(name); });
  if (missing == five.end()) return from_slurm(here, std::move(finding));
  return with(finding, {Verdict::fails,
                        concat({finding.master.empty() ? "ValueError: coordinator_address should be defined."
                                                       : "ValueError: Number of processes must be defined.",
                                " (", *missing, " is not set)"}),
                        "srun --aml-dist=jax"});
}

}  // namespace amldist::doctor
