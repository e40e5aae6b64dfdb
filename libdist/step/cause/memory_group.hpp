// The memory cgroup of a task, version 1 and 2: how much it may use, what it used, and how often the kernel killed a
// process of it for want of memory.
//
//   /slurm/uid_1000/job_12/step_0/task_3                                     version 1, below /sys/fs/cgroup/memory
//   /system.slice/slurmstepd.scope/job_12/step_0/user/task_3                 version 2, below /sys/fs/cgroup
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::step {

/// Where the kernel counts the memory of a process.
struct MemoryGroup {
  bool is_version_1 = false;
  std::string path;  ///< "/slurm/uid_1000/job_12/step_0/task_3"

  /// From the text of /proc/PID/cgroup. nullopt: no controller of memory, or a path that is not one.
  [[nodiscard]] static std::optional<MemoryGroup> parse(std::string_view proc_cgroup);
  /// nullopt for a path that leads out of the tree of groups.
  [[nodiscard]] static std::optional<MemoryGroup> make(bool is_version_1, std::string_view path);

  friend bool operator==(const MemoryGroup&, const MemoryGroup&) = default;
};

/// Longest path of a group that is looked at.
inline constexpr std::size_t longest_group = 400;

struct MemoryUse {
  std::uint64_t kills = 0;                  ///< by the kernel for want of memory, in this group
  std::optional<std::uint64_t> limit = {};  ///< the smallest of the group and those above it, in bytes
  std::optional<std::uint64_t> peak = {};   ///< of the group with that limit
  std::string_view whose = "step";          ///< who may use that much: "task", "step", "job" or "node's jobs"

  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// Reads a group below `root` (/sys/fs/cgroup, or a recorded tree). The files are the kernel's; at most a few hundred
/// bytes of each are read. nullopt: the kills cannot be read.
[[nodiscard]] std::optional<MemoryUse> read_memory_use(const MemoryGroup& group,
                                                       const std::string& root = "/sys/fs/cgroup");

}  // namespace amldist::step
