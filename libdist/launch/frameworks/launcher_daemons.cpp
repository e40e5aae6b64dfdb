#include "launch/frameworks/launcher_daemons.hpp"

#include <algorithm>
#include <array>

namespace amldist::launch {

bool is_launcher_daemon(std::string_view program) noexcept {
  // Sources: plm/slurm of Open MPI and PRRTE (orted, prted); Hydra's bootstrap in MPICH and Intel MPI; MVAPICH's
  // mpirun_rsh.
  constexpr auto daemons = std::to_array<std::string_view>(
      {"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy", "mpispawn"});
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return std::ranges::find(daemons, name) != daemons.end();
}

}  // namespace amldist::launch
