// The daemons of MPI launchers: a launcher starts one on each node by srun, and the daemons start the ranks. A step of
// such daemons is not a step of ranks: it gets no kind, even if an option holds for the whole job.
#pragma once

#include <string_view>

namespace amldist::launch {

/// Whether `program`, a path or a name, is a launcher's daemon: orted or prted (Open MPI, PRRTE), Hydra's (MPICH, Intel
/// MPI), or MVAPICH's mpispawn. Judged by the name alone. Pure.
[[nodiscard]] bool is_launcher_daemon(std::string_view program) noexcept;

}  // namespace amldist::launch
