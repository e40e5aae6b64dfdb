// What all communicators of a process share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/os/fork_guard.hpp"
#include "base/time/tick_clock.hpp"
#include "collective/gpu/cuda_driver.hpp"
#include "collective/settings.hpp"
#include "trace/record/process_recorder.hpp"
#include "world/control/control_channel.hpp"
#include "world/mpi/mpi_session.hpp"

namespace amldist::collective {

/// Made with the world, and kept alive by every communicator. All members but `mpi` may be used by several threads. The
/// members are destroyed in reverse order: the control thread uses the recorder, and MPI ends before the channel says
/// goodbye, because MPI_Finalize delivers pending messages.
struct Process {
  Settings settings;
  ForkGuard fork_guard;
  std::shared_ptr<trace::ProcessRecorder> recorder;  ///< nullptr if nothing is recorded
  std::vector<std::uint32_t> step_ranks;             ///< of the world's ranks, in the step whose calls are recorded
  CudaProbe cuda;
  TickClock ticks;
  std::string trace;  ///< for people: where the recorder is, or why it is missing
  std::unique_ptr<world::ControlChannel> channel;
  std::unique_ptr<world::MpiSession> mpi;  ///< nullptr: this process does not use MPI

  [[nodiscard]] std::vector<std::uint32_t> in_step(std::span<const std::uint32_t> members) const {
    std::vector<std::uint32_t> ranks(members.begin(), members.end());
    for (std::uint32_t& rank : ranks) rank = rank < step_ranks.size() ? step_ranks[rank] : rank;
    return ranks;
  }
};

}  // namespace amldist::collective
