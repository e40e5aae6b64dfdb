// What slurmstepd knows between two callbacks. SPANK calls one after the other: no lock is needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "spank/slurm/step_request.hpp"
#include "spank/stepd/node_start.hpp"
#include "spank/stepd/stop_watch.hpp"
#include "spank/stepd/task_trace.hpp"
#include "step/cause/kernel_log.hpp"

namespace amldist::spank {

/// Its tasks see a copy, made by the fork.
struct StepdSession {
  StepRequest request;
  NodeStart node;

  HangWatchers hang_watchers;             ///< once the tasks are there
  std::unique_ptr<StopWatch> stop_watch;  ///< the same, under stop=
  std::uint32_t ended_tasks = 0;
  step::KernelLog kernel_log;                           ///< since the step came to this node
  std::chrono::milliseconds patience_with_kernel{200};  ///< that is left for lines which its log does not have yet

  bool step_ended = false;        ///< this node has asked slurmctld to end the step
  bool refusal_is_heard = false;  ///< srun, or its stand-in, knows that this node refuses the step, and ends it
  bool srun_is_silent = false;    ///< srun did not answer in time: it is not waited for again
  bool files_hang = false;        ///< the user's files could not be read in time: they are not tried again
};

}  // namespace amldist::spank
