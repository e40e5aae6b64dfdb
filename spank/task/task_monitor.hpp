// The task monitor: a process between slurmstepd and a program that never returns by itself.
#pragma once

#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// Splits the task's process, before it becomes the user's program. Returns in the child, which goes on to become that
/// program. The parent, the monitor, never returns: it stays as the process that Slurm waits for, and ends as its child
/// ends. When srun says that the step is over, it ends the child and what that started (SIGTERM, five seconds later
/// SIGKILL), and then itself with status 0.
///
/// Of all this the program can see only that its parent is another process: standard streams, process group and signal
/// mask are the task's own. Slurm signals every process of a step, so signals for the step reach the program directly;
/// the monitor takes none but SIGKILL, and when it dies, so does its child. Returns false where there is no monitor,
/// because the system gave no process or no socket.
[[nodiscard]] bool start_task_monitor(const step::SrunLink& srun);

}  // namespace amldist::spank
