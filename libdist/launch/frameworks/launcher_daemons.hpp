// Programs by which launchers of MPI reach the nodes: they start them by srun, one on each node, and the daemons start
// the ranks. A step of such a daemon is no step of ranks: it gets no kind, whatever option holds for the whole job.
#pragma once

#include <string_view>

namespace amldist::launch {

/// Whether `program`, a path or a name, is a launcher's daemon: Open MPI's and PRRTE's (orted, prted), Hydra's of MPICH
/// and Intel MPI, MVAPICH's mpispawn. By its name alone. Pure.
[[nodiscard]] bool is_launcher_daemon(std::string_view program) noexcept;

}  // namespace amldist::launch
