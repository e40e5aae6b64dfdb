// What carries the messages of a communicator: MPI where all its ranks have it, else TCP.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/control/control_channel.hpp"
#include "collective/mpi/mpi_session.hpp"
#include "collective/transport/transport.hpp"

namespace amldist::collective {

/// A gather_all under the watchdog of whoever builds a communicator.
using Gather = std::function<Result<std::vector<std::string>>(std::string piece)>;

struct TransportChoice {
  std::unique_ptr<Transport> collectives;
  std::unique_ptr<Transport> messages;  ///< the user's own: they move whatever collective is being made
  bool shares_memory = false;           ///< they go through memory inside a node as they are: MPI's do
  std::string why_not_mpi;              ///< for people; "" where nobody asked for it
  bool is_oversubscribed = false;       ///< fewer processors than ranks on this machine
};

/// Collective over the communicator. `mpi` is nullptr where this process does without it.
[[nodiscard]] Result<TransportChoice> choose_transport(ControlChannel& channel, const CommWatch& watch,
                                                       const Gather& gather, MpiSession* mpi, Watchdog& watchdog);

}  // namespace amldist::collective
