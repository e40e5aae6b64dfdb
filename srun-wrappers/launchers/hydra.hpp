// Flags of Hydra, which starts the processes of MPICH and of Intel MPI (mpiexec.hydra of MPICH 4.0 and 5.0 and of Intel
// MPI 2021), and how it deals processes to hosts: it goes round the hosts until all processes have a place, so that no
// number of processes is too large.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launchers/mpi_flags.hpp"

namespace amldist::launchers {

/// Whose command line it is. mpich is also what both of Hydra's take.
enum class MpiFamily { open_mpi, mpich, intel };

/// Takes "--mpi NAME" out of the flags and returns the family that it names; without it, that of the first flag which
/// only one family has, and Open MPI's where none decides. Errors: an unknown name.
[[nodiscard]] Result<MpiFamily> take_family(std::vector<std::string>& words);

constexpr Dialect hydra_dialect = {.tool = "mpirun", .attached = false};

[[nodiscard]] std::vector<Row<MpiState>> hydra_rows(MpiFamily family);

/// The flags in front of each program with one hyphen, and "-genv NAME=VALUE" as "-genv NAME VALUE": Hydra takes both.
[[nodiscard]] std::vector<std::string> plain_hydra_words(const std::vector<std::string>& words);

/// Sets the step's shape as Hydra deals the processes. Errors: their number is not known.
[[nodiscard]] Result<void> set_hydra_shape(MpiState& state, MpiFamily family);

}  // namespace amldist::launchers
