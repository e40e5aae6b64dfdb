// The rank and size of the calling process, whatever started it: the plugin, torchrun, mpirun, or Slurm with any MPI
// type.
//
// The launcher closest to the process decides; variables that an outer launcher left behind are ignored:
//   torchrun        TORCHELASTIC_RUN_ID: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE
//   Slurm           a step (SLURM_STEP_ID) whose SLURM_TASK_PID is this process: aml-dist or Slurm, see below
//   mpirun          OMPI_COMM_WORLD_* together with OMPI_UNIVERSE_SIZE: then Slurm's variables are those of the daemons
//   aml-dist        the stamp of this step with RANK, WORLD_SIZE, ...
//   Slurm           SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID of a step
//   plain           RANK and WORLD_SIZE set by hand or by a launcher in a per-node step
//   PMI             PMI_RANK and PMI_SIZE
// Other sources that describe this process must agree, and the error names both. Which are compared (x), by launcher:
//               Slurm   PMIx   PMI   Open MPI   RANK and its like
//   mpirun        -      x      -       .            x (not those of an aml-dist step around it)
//   aml-dist      x      x      x       x            .
//   Slurm         .      x      x       x            x
//   plain         -      x      x       x            .
// Ignored as left by an outer step: a stamp, PMIX_NAMESPACE or PMI_JOBID that names another step than SLURM_STEP_ID,
// with the variables that belong to it; OMPI_* with OMPI_UNIVERSE_SIZE where mpirun is not the closest launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::launch {

/// What the environment says. Local numbers are set only if the launcher gives them.
struct ProcessIdentity {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::optional<std::uint32_t> local_rank;
  std::optional<std::uint32_t> local_size;
  std::optional<std::uint32_t> node_rank;
  std::optional<std::uint32_t> nodes;
  std::string source = "no launcher: one process alone";  ///< for people
};

/// Errors: mismatch when two sources disagree (names both), invalid_argument for a malformed or too large number.
/// `own_pid`: this process's id, to compare with SLURM_TASK_PID; 0: unknown.
[[nodiscard]] Result<ProcessIdentity> read_process_identity(const EnvironmentReader& environment, int own_pid = 0);

/// Whether the PMIx variables belong to this process, and not to an outer step or to an mpirun that started it.
[[nodiscard]] bool has_own_pmix(const EnvironmentReader& environment, const ProcessIdentity& identity);

}  // namespace amldist::launch
