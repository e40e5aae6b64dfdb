#include <algorithm>

#include "base/os/environment.hpp"
#include "launchers/mpi_flags.hpp"

namespace amldist::launchers {

using text::concat;

/// With a hostfile -host selects its hosts, in the order of -host and with the slots of -host, whatever the hostfile
/// says (PRRTE's prte_util_dash_host_compute_slots; so does Open MPI 4.1).
Result<void> choose_hosts(MpiState& state) {
  if (state.pool.empty()) return {};
  if (state.hosts.empty()) {
    state.hosts = state.pool;
    return {};
  }
  for (const Host& host : state.hosts) {
    if (std::ranges::find(state.pool, host.name, &Host::name) != state.pool.end()) continue;
    return Error{Errc::invalid_argument,
                 concat({"-host names ", text::quote(host.name), ", which the hostfile does not have: add it there"})};
  }
  return {};
}

Result<void> limit_hosts(MpiState& state, std::optional<std::uint32_t> per_node) {
  if (!per_node || state.hosts.empty()) return {};
  const std::uint64_t most = std::uint64_t{*per_node} * state.hosts.size();
  if (most > 1U << 20U || (state.processes && *state.processes > most)) {
    return Error{Errc::mismatch,
                 concat({std::to_string(state.processes.value_or(static_cast<std::uint32_t>(most))),
                         " processes do not fit: there are ", std::to_string(*per_node), " on each of ",
                         text::count(state.hosts.size(), "host"), ": ask for fewer, or name more hosts"})};
  }
  if (!state.processes) state.processes = static_cast<std::uint32_t>(most);
  for (Host& host : state.hosts) host.slots = std::min(host.slots.value_or(*per_node), *per_node);
  return {};
}

Result<void> check_count(const MpiState& state) {
  const commands::SlurmOptions& srun = state.line.srun;
  const std::string_view binding = srun.value_of("cpu-bind");
  if (srun.has("cpus-per-task") && (binding.ends_with("sockets") || binding.ends_with("ldoms"))) {
    return Error{
        Errc::invalid_argument,
        "several CPUs for a process (PE=N, --cpus-per-rank) are bound as cores or hwthreads: give --bind-to core"};
  }
  if (state.processes || !(srun.has("ntasks-per-socket") || srun.has("ntasks-per-core"))) return {};
  return Error{Errc::invalid_argument,
               "the number of processes is missing: Slurm knows the sockets and cores of a node when it starts "
               "the step: give -n N"};
}

Result<void> place_per_node(MpiState& state, std::string_view hosts_flag) {
  commands::SlurmOptions& srun = state.line.srun;
  const std::uint32_t each = *state.per_node;
  const std::uint32_t all = state.processes.value_or(each);
  if (all > each && all % each != 0) {
    return Error{Errc::invalid_argument,
                 concat({std::to_string(all), " processes, ", std::to_string(each),
                         " on each node, do not come out even, and Slurm would even them out: name the nodes with ",
                         hosts_flag, ", or use a multiple of ", std::to_string(each)})};
  }
  srun.set("ntasks-per-node", std::to_string(std::min(all, each)));
  if (!state.processes) return {};
  srun.set("nodes", std::to_string(std::max(1U, all / each)));
  srun.set("ntasks", std::to_string(all));
  return {};
}

Result<void> set_mpi_shape(MpiState& state) {
  if (auto status = check_count(state); !status) return status;
  if (auto status = choose_hosts(state); !status) return status;
  commands::SlurmOptions& srun = state.line.srun;
  if (!state.hosts.empty()) {
    if (auto status = limit_hosts(state, state.per_node); !status) return status;
    if (srun.has("overcommit")) oversubscribe(state.hosts, state.processes);
    return place(state.hosts, state.processes, state.distribution, srun);
  }
  if (state.per_node) {
    if (auto status = place_per_node(state, "-host"); !status) return status;
  } else if (state.processes) srun.set("ntasks", std::to_string(*state.processes));
  if (!state.processes && !state.per_node && !own_variable("SLURM_JOB_ID")) {
    return Error{Errc::invalid_argument, "the number of processes is missing: give -n N"};
  }
  if (state.distribution_chosen && !srun.has("distribution")) {
    srun.set("distribution", state.distribution == Distribution::by_node ? "cyclic" : "block");
  }
  return {};
}

}  // namespace amldist::launchers
