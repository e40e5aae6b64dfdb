// Slurm's tasks per node, as in SLURM_STEP_TASKS_PER_NODE.
//
//   4            one node with four tasks
//   2(x3),1      three nodes with two tasks, then one node with one
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist {

/// `nodes` consecutive nodes with `tasks` tasks each.
struct TasksRun {
  std::uint32_t nodes;
  std::uint32_t tasks;

  friend bool operator==(const TasksRun&, const TasksRun&) = default;
};

/// Most tasks in a step: 2^26, far above any Slurm, and small enough that no product overflows.
inline constexpr std::uint64_t most_tasks = 1ULL << 26;

/// Parses the grammar and merges equal neighbours. Errors: invalid_argument with the wrong piece, limit.
/// A count of 0 is refused: it occurs only in a component's view of a heterogeneous step.
[[nodiscard]] Result<std::vector<TasksRun>> parse_tasks_per_node(std::string_view text);

}  // namespace amldist
