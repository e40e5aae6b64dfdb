// slurmstepd's thread under hang=: tells srun how long this node's ranks wait, what each of them waits in, and where.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/answer_as_user.hpp"
#include "base/os/quiet_thread.hpp"
#include "base/time/clock.hpp"
#include "step/cause/memory_group.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// Which tasks of this node have ended with status 0, by their local numbers: a recorder does not tell. Slurm's thread
/// adds them while the watching one reads.
class ExitedTasks {
 public:
  explicit ExitedTasks(std::size_t tasks) : tasks_(tasks) {}
  void add(std::size_t task) noexcept {
    if (task < tasks_.size()) tasks_[task].store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool has(std::size_t task) const noexcept {
    return task < tasks_.size() && tasks_[task].load(std::memory_order_relaxed);
  }

 private:
  std::vector<std::atomic<bool>> tasks_;
};

/// What the thread needs to know; it reads nothing of the session.
struct WatchedNode {
  step::SrunLink srun;
  UserRights rights;
  std::vector<std::string> roots;  ///< folders in which the user's recorders may lie
  std::string step;                ///< "42.0"
  std::string host;
  std::vector<std::uint32_t> ranks;   ///< of this node's tasks
  std::vector<pid_t> processes = {};  ///< of each of them
  std::shared_ptr<const ExitedTasks> exited = {};
  /// Where the kernel counts the memory of a task, by its local number; nullopt: not known, or not yet.
  std::function<std::optional<step::MemoryGroup>(std::size_t)> memory_group = {};
  bool has_launchers = false;       ///< its tasks start the ranks, and number them
  std::uint32_t size = 0;           ///< tasks of the step
  std::uint32_t seconds = 0;        ///< hang=
  Clock::time_point begin = {};     ///< when the step came to this node: what is older is not its
  std::uint16_t stand_in_port = 0;  ///< of this node's stand-in; 0: it is on another node, or there is none
};

/// Reads the recorders in a child with the user's rights: they are his files. Sends no signal to a task.
class HangWatch {
 public:
  /// Starts the thread, after the tasks were forked. Without one (no memory) nobody watches this node.
  explicit HangWatch(WatchedNode node) noexcept;

 private:
  QuietThread thread_;
};

}  // namespace amldist::spank
