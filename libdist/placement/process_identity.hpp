// Who the calling process is, whoever started it: the plugin, torchrun, mpirun, or Slurm with any MPI type.
//
// The launcher nearest to the process is believed; what an outer one left in the environment is not asked:
//   torchrun        TORCHELASTIC_RUN_ID: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE
//   Slurm           a step (SLURM_STEP_ID) whose SLURM_TASK_PID is this very process: aml-dist or Slurm, see below
//   mpirun          OMPI_COMM_WORLD_* beside OMPI_UNIVERSE_SIZE: Slurm's variables are those of the daemons
//   aml-dist        the stamp of this step with RANK, WORLD_SIZE, ...
//   Slurm           SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID of a step
//   plain           RANK and WORLD_SIZE that somebody set by hand, or a launcher in a per-node step
//   PMI             PMI_RANK and PMI_SIZE
// The others that describe this process must say the same, and an error names both: by launcher
//               Slurm   PMIx   PMI   Open MPI   RANK and its like
//   mpirun        -      x      -       .            x (not those of an aml-dist step around it)
//   aml-dist      x      x      x       x            .
//   Slurm         .      x      x       x            x
//   plain         -      x      x       x            .
// Left by an outer step, and not asked: a stamp, PMIX_NAMESPACE or PMI_JOBID that names another step than SLURM_STEP_ID
// does, with what belongs to it; OMPI_* beside OMPI_UNIVERSE_SIZE where mpirun is not the nearest launcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/environment.hpp"
#include "core/result.hpp"

namespace amldist {

/// What the environment says. Local numbers are known only where the launcher gives them.
struct ProcessIdentity {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::optional<std::uint32_t> local_rank;
  std::optional<std::uint32_t> local_size;
  std::optional<std::uint32_t> node_rank;
  std::optional<std::uint32_t> nodes;
  std::string source = "no launcher: one process alone";  ///< for people
};

/// Errors: mismatch when two sources disagree (both are named), invalid_argument for a number that is malformed or too
/// large. `own_pid`: of this process, to be compared with SLURM_TASK_PID; 0: not known.
[[nodiscard]] Result<ProcessIdentity> read_process_identity(const EnvironmentReader& environment, int own_pid = 0);

/// Whether the PMIx of the environment is this process's, and not left by an outer step or by an mpirun around this
/// one.
[[nodiscard]] bool has_own_pmix(const EnvironmentReader& environment, const ProcessIdentity& identity);

}  // namespace amldist
