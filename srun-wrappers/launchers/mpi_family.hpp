// Whose command line aml-mpirun is given: its flags tell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::launchers {

/// mpich is also what Intel MPI and MVAPICH take.
enum class MpiFamily { open_mpi, mpich, intel, mvapich };

/// Takes "--mpi NAME" out of the flags and returns the family that it names; without it, the one that has all flags in
/// front of the (first) program: Open MPI, else MPICH, else Intel MPI, else MVAPICH. Variables of Intel MPI or MVAPICH
/// tell, too. Errors: an unknown name; two flags that no family has both.
[[nodiscard]] Result<MpiFamily> take_family(std::vector<std::string>& words);

/// The flags in front of each program with one hyphen, and "-genv NAME=VALUE" as "-genv NAME VALUE": Hydra takes both.
[[nodiscard]] std::vector<std::string> plain_hydra_words(const std::vector<std::string>& words);

/// "NAME=VALUE".
[[nodiscard]] bool is_assignment(std::string_view word);

}  // namespace amldist::launchers
