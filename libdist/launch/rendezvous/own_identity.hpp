// Reads the calling process's identity from the variables that the plugin wrote.
#pragma once

#include <cstdint>
#include <optional>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/placement/identity.hpp"

namespace amldist::launch {

/// Identity and rendezvous port.
struct OwnIdentity {
  Identity identity;
  std::optional<std::uint16_t> master_port;
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK of a step that --aml-dist started per process, and
/// checks them against SLURM_PROCID and SLURM_NTASKS where these are set. Errors: unavailable outside such a step or
/// when a variable is missing, mismatch when two disagree.
[[nodiscard]] Result<OwnIdentity> read_own_identity(const EnvironmentReader& environment);

}  // namespace amldist::launch
