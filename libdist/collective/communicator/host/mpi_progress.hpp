// Progress of MPI during waits that do not call it.
#pragma once

#include "collective/communicator/context/progress_hook.hpp"
#include "world/mpi/mpi_session.hpp"

namespace amldist::collective {

/// The program may have MPI messages of its own under way, for example one that waits for a connection. MPI makes
/// progress only while it is called, and a wait in the node's shared memory does not call it. So if MPI carries data,
/// each wait calls it at intervals.
class MpiProgress final : public ProgressHook {
 public:
  /// `mpi` may be nullptr. `any_thread`: whether threads other than the program's use the communicator, which MPI may
  /// not permit.
  MpiProgress(const world::MpiSession* mpi, bool any_thread) : mpi_(mpi), any_thread_(any_thread) {}

  void drive() override {
    if (mpi_ == nullptr || mpi_->comm() == 0) return;
    if (mpi_->serves_any_thread() || !any_thread_) mpi_->functions().move_on();
  }

 private:
  const world::MpiSession* const mpi_;
  const bool any_thread_;
};

}  // namespace amldist::collective
