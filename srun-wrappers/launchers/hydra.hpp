// Flags of Hydra, which starts the processes of MPICH and of Intel MPI (mpiexec.hydra of MPICH 4.0 and 5.0 and of Intel
// MPI 2021), and how it deals processes to hosts: it goes round the hosts until all processes have a place, so that no
// number of processes is too large.
#pragma once

#include <string>
#include <vector>

#include "launchers/mpi_family.hpp"
#include "launchers/mpi_flags.hpp"

namespace amldist::launchers {

constexpr Dialect hydra_dialect = {.tool = "mpirun", .attached = false};

[[nodiscard]] std::vector<Row<MpiState>> hydra_rows(MpiFamily family);

/// mpirun_rsh of MVAPICH: takes the hosts behind "-rsh -np N", and "NAME=VALUE", from in front of a program. Errors: no
/// program is left, or a word where a host must stand is not a host name.
[[nodiscard]] Result<void> take_mvapich_words(MpiState& state, std::vector<std::string>& program);

/// Sets the step's shape as Hydra deals the processes. Errors: their number is not known.
[[nodiscard]] Result<void> set_hydra_shape(MpiState& state, MpiFamily family);

}  // namespace amldist::launchers
