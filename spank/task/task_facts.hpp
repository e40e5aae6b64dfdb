// What each task tells its slurmstepd about itself just before it becomes the user's program.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/os/shared_array.hpp"
#include "step/cause/memory_group.hpp"

namespace amldist::spank {

/// One task's place in memory that all tasks of this node share. Once the program runs, no task can write here.
struct TaskFacts {
  std::atomic<bool> is_complete = false;
  bool is_version_1 = false;
  std::array<char, step::longest_group + 1> group = {};
};

using AllTaskFacts = SharedArray<TaskFacts>;

/// In the task, in its own cgroup.
void note_task(TaskFacts& facts);

/// The cgroup in which the kernel counts the task's memory; nullopt: it has not told.
[[nodiscard]] std::optional<step::MemoryGroup> memory_group_of(const TaskFacts* facts);

}  // namespace amldist::spank
