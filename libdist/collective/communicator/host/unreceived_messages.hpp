// Messages that were never received, found when a communicator ends.
#pragma once

#include "collective/communicator/context/comm_context.hpp"
#include "collective/communicator/context/sequence_numbers.hpp"
#include "collective/communicator/host/host_backend.hpp"

namespace amldist::collective {

/// The last joint operation of the ranks: each compares the messages sent to it with those that it has received. A
/// short message is sent before its receiver asks for it (eager), so the mistake would go unnoticed until then.
/// Collective. Errors: peer, naming a rank that has not received all.
[[nodiscard]] Result<void> check_all_received(CommContext& context, HostBackend& backend,
                                              const SequenceNumbers& numbers, const calls::Call& finalize,
                                              calls::Watchdog& watchdog);

}  // namespace amldist::collective
