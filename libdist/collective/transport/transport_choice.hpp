// Chooses the transport of a communicator: MPI if all its ranks use it, else TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "calls/pieces.hpp"
#include "collective/transport/transport.hpp"
#include "world/control/control_channel.hpp"
#include "world/mpi/mpi_session.hpp"

namespace amldist::collective {

/// gather_all under the watchdog of the caller, which builds a communicator.
using Gather = std::function<Result<calls::Pieces>(std::string piece, calls::GatherScope scope)>;

struct TransportChoice {
  std::unique_ptr<Transport> collectives;
  std::unique_ptr<Transport> messages;  ///< for the user's own messages, which progress independently of collectives
  bool shares_memory = false;           ///< the transport itself uses shared memory inside a node, as MPI does
  std::string why_not_mpi;              ///< for messages; "" if MPI was not requested
  bool is_oversubscribed = false;       ///< fewer processors than ranks on this machine
};

/// Collective over the communicator. `mpi` is nullptr if this process does not use MPI.
[[nodiscard]] Result<TransportChoice> choose_transport(world::ControlChannel& channel, const world::CommWatch& watch,
                                                       const Gather& gather, world::MpiSession* mpi,
                                                       calls::Watchdog& watchdog);

}  // namespace amldist::collective
