// The guardian of a server: a process between slurmstepd and a task that never returns by itself.
#pragma once

#include "spank/srun_link.hpp"

namespace amldist::spank {

/// Splits the task's process, before it becomes the user's program. Returns in the child, which goes on to be that
/// program. The parent stays as the process that Slurm waits for, and never returns: it ends as its child ends. But
/// when srun says that the step is over, it ends the child and what that started (SIGTERM, five seconds later SIGKILL),
/// and itself with status 0.
///
/// The program notices nothing but its parent's pid: standard streams, process group, signal mask are the task's own.
/// Signals for the step reach the program directly, since Slurm signals every process of a step; the guardian takes
/// none but SIGKILL, and when it dies, so does its child. Without a process or a socket to be had there is no guardian.
/// Returns whether there is one.
[[nodiscard]] bool leave_guardian(const SrunLink& target);

}  // namespace amldist::spank
