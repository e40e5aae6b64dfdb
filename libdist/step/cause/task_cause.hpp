// From everything that a node knows about the end of a task: why it ended. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "step/cause/cause.hpp"
#include "step/cause/error_file.hpp"
#include "step/cause/kernel_log.hpp"
#include "step/cause/memory_group.hpp"

namespace amldist::step {

struct TaskEnd {
  std::uint32_t wait_status = 0;
  std::uint32_t pid = 0;  ///< as the kernel's log would name it; 0: not known
  std::string host = {};
  std::optional<MemoryGroup> group = {};
  std::optional<MemoryUse> memory = {};  ///< when it had ended; nullopt: it cannot be read
  bool log_was_read = false;             ///< the kernel's
  std::span<const KernelRecord> log = {};
  std::array<std::uint64_t, 2> now_us = {};         ///< by the two clocks of which the log's is one
  std::vector<std::string> gpus = {};               ///< the step's, "0000:3b:00.0"
  std::optional<std::uint64_t> address_space = {};  ///< limit in bytes (ulimit -v); nullopt: none
  UserFindings user = {};
};

/// A process of this task that the kernel killed for want of memory, while the task lived on: "the kernel killed its
/// process 8123 python (211 GiB) 41 min before, for want of memory: the step may use ...".
[[nodiscard]] std::optional<Cause> find_lost_process(const TaskEnd& end);

/// Whether the kernel killed more processes of the task than its log, which was read, has told of: it counts and kills
/// before it writes the line.
[[nodiscard]] bool lacks_kernels_line(const TaskEnd& end);

/// At most FailureReport::most_causes, the most telling first; each of another kind.
[[nodiscard]] std::vector<Cause> find_causes(const TaskEnd& end);

}  // namespace amldist::step
