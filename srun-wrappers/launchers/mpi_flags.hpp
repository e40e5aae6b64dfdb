// mpirun's flags (Open MPI 4.1 and 5.0). aml-mpirun reads them from its command line, aml-horovodrun those of
// --mpi-args.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launchers/hosts.hpp"
#include "launchers/launcher.hpp"

namespace amldist::launchers {

/// The settings of mpirun's flags. Each of several programs (":") has its own; Base is shared.
struct MpiState : Base {
  std::optional<std::uint32_t> processes;
  std::optional<std::uint32_t> per_node;
  std::vector<Host> hosts;            ///< of -host
  std::vector<Host> pool;             ///< of a hostfile
  std::string folder;                 ///< -wdir
  std::vector<std::string> exported;  ///< names that -x sets, among line.environment
  std::vector<std::string> unset;     ///< names of --unset-env
  bool names_hosts = false;           ///< mpirun_rsh: hosts may stand in front of the program
  Distribution distribution = Distribution::by_slot;
  bool distribution_chosen = false;
  std::optional<bool> oversubscribes;  ///< --oversubscribe, --nooversubscribe
};

/// Open MPI 5 accepts prefixes of one flag; the word after a flag is its value, whatever it looks like.
constexpr Dialect mpi_dialect = {.tool = "mpirun", .prefixes = true};

[[nodiscard]] std::vector<Row<MpiState>> mpi_rows();

/// Sets `hosts` to those that -host and the hostfile select together. Errors: a host that the hostfile does not have.
[[nodiscard]] Result<void> choose_hosts(MpiState& state);

/// Limits the hosts to `per_node` processes each, and computes their number if -n was not given. Errors: they do not
/// fit.
[[nodiscard]] Result<void> limit_hosts(MpiState& state, std::optional<std::uint32_t> per_node);

/// Errors: processes are counted by socket or core, whose number only Slurm knows, and -n is not given; several CPUs
/// for a process, and a binding to more than those.
[[nodiscard]] Result<void> check_count(const MpiState& state);

/// So many processes on each node, where the nodes are Slurm's choice. `hosts_flag` names them. Errors: the processes
/// do not come out even.
[[nodiscard]] Result<void> place_per_node(MpiState& state, std::string_view hosts_flag);

/// Sets the step's shape from the flags. Errors: contradictions; the number of processes is not known.
[[nodiscard]] Result<void> set_mpi_shape(MpiState& state);

}  // namespace amldist::launchers
