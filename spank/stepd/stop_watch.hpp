// slurmstepd's thread under stop=: makes the stop file of this node when it is time, and removes it at the end.
#pragma once

#include <memory>
#include <string>

#include "base/os/answer_as_user.hpp"
#include "base/os/quiet_thread.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/stepd/node_start.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// Asks srun, or its stand-in, how long it is until the stop. All that touches a file is done in a child with the
/// user's rights: the folder is the user's.
class StopWatch {
 public:
  struct Node {
    step::SrunLink srun;
    UserRights rights;
    std::string step;  ///< "42.0"
  };
  /// Starts the thread, after the tasks were forked. Without one (no memory) no file appears on this node.
  explicit StopWatch(Node node) noexcept;

 private:
  QuietThread thread_;
};

/// slurmstepd, once its tasks are forked. nullptr without stop=, and where nobody could say when it is time.
[[nodiscard]] std::unique_ptr<StopWatch> watch_for_stop(const NodeStart& node, const Handle& handle);

}  // namespace amldist::spank
