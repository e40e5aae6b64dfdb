// The fabric between the nodes, verified once when the world is made, where the site or the user asks for it.
#pragma once

#include "collective/communicator/communicator.hpp"
#include "core/environment.hpp"
#include "core/result.hpp"

namespace amldist::capi {

/// Does nothing unless the world's setting for RDMA is require or prefer (the plugin sets AMLDIST_RDMA by rdma=).
/// `environment` has the user's choices for NCCL and UCX. Collective. Under require a
/// failure is an error on all ranks; under prefer rank 0 says it in one line, and all ranks get the variables by which
/// NCCL and UCX use sockets.
[[nodiscard]] Result<void> verify_fabric(collective::Communicator& world, const EnvironmentReader& environment);

}  // namespace amldist::capi
