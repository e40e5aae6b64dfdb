// What each task tells its slurmstepd about itself just before it becomes the user's program.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory/shared_atomic.hpp"
#include "base/text/environment.hpp"
#include "fabric/facts/rank_place.hpp"
#include "launch/placement/identity.hpp"
#include "spank/stepd/shared_array.hpp"
#include "step/cause/memory_group.hpp"

namespace amldist::spank {

/// One task's place in memory that all tasks of this node share. Once the program runs, no task can write here.
struct TaskFacts {
  std::atomic<bool> is_complete = false;
  bool is_version_1 = false;
  std::array<char, step::longest_group + 1> group = {};
  fabric::RankPlace place = {};
};

/// What slurmstepd reads about its node for them, before it forks them.
struct NodeDevices {
  std::vector<fabric::NumaProcessors> numa = {};
  std::vector<fabric::NumberedGpu> gpus = {};
  fabric::DevicePlaces places = {};
};
[[nodiscard]] NodeDevices read_devices();

/// Of all tasks of a node, by their local numbers in this slurmstepd.
struct AllTaskFacts {
  SharedArray<TaskFacts> tasks = {};
  SharedAtomic<std::uint32_t> complete = {};  ///< tasks that have told
  NodeDevices devices = {};                   ///< only on rank 0's node

  [[nodiscard]] static AllTaskFacts make(std::uint32_t tasks);
};

/// In the task, in its own cgroup and on its own processors. Returns whether it is the last of them.
[[nodiscard]] bool note_task(const AllTaskFacts& all, std::uint32_t local, const launch::Identity& identity,
                             const EnvironmentReader& environment);

/// By the last task of rank 0's node: the lines for the user about where the ranks are.
[[nodiscard]] std::vector<std::string> lines_about_places(const AllTaskFacts& all, const std::string& host,
                                                          bool verbose);

/// The cgroup in which the kernel counts the task's memory; nullopt: it has not told.
[[nodiscard]] std::optional<step::MemoryGroup> memory_group_of(const TaskFacts* facts);

}  // namespace amldist::spank
