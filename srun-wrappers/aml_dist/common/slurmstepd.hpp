// The slurmstepd that started this task. If it is killed, Slurm does not notice: the task goes on without it, and srun
// waits for that node until somebody cancels the step.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"

namespace amldist::tools {

class Slurmstepd {
 public:
  /// Finds the slurmstepd above this process. Without one, or where /proc hides it, has_ended() is always false.
  Slurmstepd();
  [[nodiscard]] bool has_ended() const noexcept;

 private:
  FileDescriptor handle_;
};

/// How long this node's slurmstepd of a step, "12.0", has been running; nullopt if no such
/// process exists, or /proc hides it.
[[nodiscard]] std::optional<std::chrono::milliseconds> age_of_step(std::string_view step);

/// Ends a step, "12.0", on all nodes; srun then waits for KillWait and two seconds at most.
void cancel_step(const std::string& step);

}  // namespace amldist::tools
