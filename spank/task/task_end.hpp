// slurmstepd, as root, when one of its tasks has ended.
#pragma once

#include "spank/slurm/handle.hpp"
#include "spank/stepd/stepd_session.hpp"

namespace amldist::spank {

/// Tells srun of a task that failed, and beside parameter servers of every chief and worker that ended. Ends the step
/// on all nodes if this node has refused it.
void finish_task(StepdSession& session, const Handle& handle);

}  // namespace amldist::spank
