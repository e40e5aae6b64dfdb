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

/// Asks srun, or its stand-in, how long it is until the stop, and listens for signals that mean one. srun cannot tell
/// it: nodes listen on no port. All that touches a file of the user's is done in a child with the user's rights.
class StopWatch {
 public:
  struct Node {
    step::SrunLink srun;
    UserRights rights;
    std::string step;        ///< "42.0"
    int signal;              ///< of the key; 0: none
    std::string group_file;  ///< that makes a process one of the step's; empty: all children of slurmstepd are
  };
  /// Starts the thread, after the tasks were forked. Without one (no memory) no file appears on this node.
  explicit StopWatch(Node node) noexcept;

 private:
  QuietThread thread_;
};

/// slurmstepd, once its tasks are forked. nullptr without stop=, and where nobody could say when it is time.
[[nodiscard]] std::unique_ptr<StopWatch> watch_for_stop(const NodeStart& node, const Handle& handle);

}  // namespace amldist::spank
