// The numbers of a process within its step.
#pragma once

#include <cstdint>

#include "launch/placement/task_map.hpp"

namespace amldist::launch {

/// Numbers of one process in its step, all counted from 0 without gaps.
struct Identity {
  std::uint32_t rank = 0;        ///< 0..size-1 over the whole step
  std::uint32_t size = 1;        ///< processes of the step
  std::uint32_t local_rank = 0;  ///< 0..local_size-1 on the node
  std::uint32_t local_size = 1;  ///< processes of the step on this node
  std::uint32_t node_rank = 0;   ///< 0..nodes-1, in the order of each node's lowest rank
  std::uint32_t nodes = 1;       ///< nodes of the step

  friend bool operator==(const Identity&, const Identity&) = default;
};

/// Identity of a rank below map.size().
[[nodiscard]] inline Identity identity_of(const TaskMap& map, std::uint32_t rank) {
  const std::uint32_t node = map.node_of(rank);
  return {rank, map.size(), map.local_rank_of(rank), map.tasks_on(node), map.node_rank_of(node), map.nodes()};
}

}  // namespace amldist::launch
