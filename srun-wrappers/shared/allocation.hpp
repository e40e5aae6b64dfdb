// Where a command runs: outside of any job, in an allocation, or in a task.
#pragma once

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::commands {

enum class JobContext {
  outside,
  allocation,  ///< in a batch script or in salloc's shell
  task,        ///< in the only task of a step, which holds the CPUs that another step would need
};

/// From Slurm's variables. Errors: invalid_argument in one of several tasks, each of which would start a whole step.
[[nodiscard]] Result<JobContext> find_job_context();

/// Sets the number of tasks in `step` if it only has the number per node: in an allocation srun would otherwise use the
/// allocation's SLURM_NTASKS.
void count_tasks(SlurmOptions& step);

}  // namespace amldist::commands
