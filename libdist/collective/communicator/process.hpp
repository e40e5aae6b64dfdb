// What all communicators of a process share.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "collective/control/control_channel.hpp"
#include "collective/gpu/cuda_driver.hpp"
#include "collective/mpi/mpi_session.hpp"
#include "core/settings.hpp"
#include "os/fork_guard.hpp"
#include "os/tick_clock.hpp"
#include "recorder/flight_recorder.hpp"

namespace amldist::collective {

/// Made with the world, and kept alive by every communicator. All members but `mpi` may be used by several threads.
/// The order of the members is the reverse of the order in which they end: the control thread uses the recorder, and
/// MPI ends before the channel says goodbye, as MPI_Finalize delivers what is on its way.
struct Process {
  Settings settings;
  ForkGuard fork_guard;
  FlightRecorder recorder;
  std::mutex noting;  ///< around recorder.note(): communicators may fail on several threads at once
  CudaProbe cuda;
  TickClock ticks;
  std::string trace;  ///< for people: where the recorder is, or why there is none
  std::unique_ptr<ControlChannel> channel;
  std::unique_ptr<MpiSession> mpi;  ///< nullptr: this process does not use MPI
};

}  // namespace amldist::collective
