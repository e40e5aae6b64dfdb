// Messages that nobody received, found when a communicator ends.
#pragma once

#include "collective/communicator/context/comm_context.hpp"
#include "collective/communicator/context/sequence_numbers.hpp"
#include "collective/communicator/host/host_backend.hpp"

namespace amldist::collective {

/// The last thing that ranks do together: each compares what was sent to it with what it has received. A short message
/// is on its way without its receiver (eager), so nobody would notice before. Collective. Errors: peer, naming a rank
/// that has not received all.
[[nodiscard]] Result<void> check_all_received(CommContext& context, HostBackend& backend,
                                              const SequenceNumbers& numbers, const calls::Call& finalize,
                                              calls::Watchdog& watchdog);

}  // namespace amldist::collective
