// Holds a node's tasks, in their own processes, until every node of the step has reported that it has aml-dist.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/memory/shared_atomic.hpp"
#include "base/text/result.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// One task of the node asks srun, the others wait for what it was told.
struct StartGate {
  enum class State : int { closed, open, refused };

  [[nodiscard]] static StartGate make();

  /// Returns when the task may start its program. `host`: this node. An error: it must not; the message is empty where
  /// srun, or another task, says why. An srun that does not answer is waited for, but not for ever.
  [[nodiscard]] Result<void> wait(const step::SrunLink& srun, const std::string& host, bool has_srun) const;

  SharedAtomic<pid_t> asking;  ///< the task that asks; 0: none yet
  SharedAtomic<State> state;   ///< what it was told
};

}  // namespace amldist::spank
