// Who the calling process is, whoever started it: the plugin, torchrun, mpirun, or Slurm with any MPI type.
//
// The launcher nearest to the process is believed; what an outer one left in the environment is not asked:
//   torchrun        TORCHELASTIC_RUN_ID: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE
//   mpirun          OMPI_COMM_WORLD_* beside OMPI_UNIVERSE_SIZE: Slurm's variables are those of the daemons
//   aml-dist        the stamp with RANK, WORLD_SIZE, ...
//   Slurm           SLURM_PROCID, SLURM_NTASKS of a step (SLURM_STEP_ID), SLURM_LOCALID, SLURM_NODEID
//   plain           RANK and WORLD_SIZE that somebody set by hand
//   PMI             PMI_RANK and PMI_SIZE
// Sources of one level must agree, and an error names both.
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

/// Errors: mismatch when two sources disagree (both are named), invalid_argument for a malformed number.
[[nodiscard]] Result<ProcessIdentity> read_process_identity(const EnvironmentReader& environment);

}  // namespace amldist
