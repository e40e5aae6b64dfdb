// What the plugin does in each context, one file each. None of these throws on bad input; whatever is thrown for lack
// of memory is stopped in plugin.cpp.
#pragma once

#include <cstdint>

#include "spank/handle.hpp"
#include "spank/session.hpp"

namespace amldist::spank {

// ---- srun, sbatch, salloc: the user's own ----
// process

/// Refuses a bad option before anything is launched: tells the user and returns an error.
[[nodiscard]] Result<void> check_option(const Session& session);

/// srun, before anything exists: takes the port where failures are heard, and tells the nodes. Without it the step runs
/// all the same. Here and not later, because what is put into the environment here reaches every component of a
/// heterogeneous step.
void open_reports(Session& session);

/// srun, when the step exists and its tasks do not: checks the counts, chooses the master's address, and sends both
/// with the exact task map to the nodes. Begins to listen for failures.
[[nodiscard]] Result<void> prepare_launch(Session& session, const Handle& handle);

/// srun, for a step that is refused: takes back what the two above have done.
void withdraw_launch(Session& session) noexcept;

/// srun, for a step that is refused inside a job. Slurm would keep such a step, and its CPUs, to the end of the job, so
/// that the next srun in it waits for ever: neither srun nor scancel can end a step that was never launched. So it is
/// launched, and the nodes start none of its tasks. Returns whether the nodes will know; not those of a heterogeneous
/// step.
[[nodiscard]] bool leave_refusal_to_nodes(const Session& session) noexcept;

// ---- slurmstepd ----

/// Before the fork: reads the record and the step's facts and makes the plan. Failures are kept in the session, because
/// an error here would drain the node.
void plan_step(Session& session, const Handle& handle);

/// In the task's own process, as the user: writes the environment. The only place where a task may be refused.
[[nodiscard]] Result<void> start_task(const Session& session, const Handle& handle);

/// In slurmstepd, when a task has gone: tells srun of its failure, or ends the step everywhere if this node could not
/// do its work.
void finish_task(Session& session, const Handle& handle);

}  // namespace amldist::spank
