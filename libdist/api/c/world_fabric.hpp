// Verifies the fabric between the nodes once, when the world is made, if the site or the user asks for it.
#pragma once

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "collective/communicator/communicator.hpp"
#include "fabric/facts/settings.hpp"

namespace amldist::api {

/// Does nothing unless `wanted` is require or prefer.
/// `environment` has the user's choices for NCCL and UCX. Collective. Under require a failure is an error on all ranks;
/// under prefer rank 0 reports it in one line, and all ranks get the variables by which NCCL and UCX use sockets.
[[nodiscard]] Result<void> verify_fabric(collective::Communicator& world, const fabric::WorldPolicy& wanted,
                                         const EnvironmentReader& environment);

}  // namespace amldist::api
