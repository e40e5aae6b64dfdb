// What slurmstepd knows between two callbacks. SPANK calls one after the other: no lock is needed.
#pragma once

#include <cstdint>
#include <memory>

#include "spank/slurm/step_request.hpp"
#include "spank/stepd/node_start.hpp"
#include "spank/stepd/stop_watch.hpp"
#include "spank/stepd/task_trace.hpp"

namespace amldist::spank {

/// Its tasks see a copy, made by the fork.
struct StepdSession {
  StepRequest request;
  NodeStart node;

  HangWatchers hang_watchers;             ///< once the tasks are there
  std::unique_ptr<StopWatch> stop_watch;  ///< the same, under stop=
  std::uint32_t ended_tasks = 0;

  bool step_ended = false;      ///< this node has asked slurmctld to end the step
  bool srun_is_silent = false;  ///< srun did not answer in time: it is not waited for again
  bool recorders_hang = false;  ///< a flight recorder could not be read in time: no other is tried
};

}  // namespace amldist::spank
