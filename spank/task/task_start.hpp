// The task's own process, as the user, before it becomes his program.
#pragma once

#include "base/text/result.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/stepd/node_start.hpp"

namespace amldist::spank {

/// Writes the task's environment. An error refuses the task, and with it the step: the only place in slurmstepd where
/// that is possible. The user has been told why.
[[nodiscard]] Result<void> start_task(const NodeStart& node, const Handle& handle);

}  // namespace amldist::spank
