// What holds for every map of ranks to nodes, whatever it was made from.
#pragma once

#include <vector>

#include "fuzz.hpp"
#include "launch/placement/task_map.hpp"

namespace amldist::fuzz {

/// Larger maps are not looked at rank by rank.
inline constexpr std::uint32_t most_ranks_checked = 2048;

/// Every rank is on one node; local ranks are dense on each node, node ranks over all nodes; rank 0's node has node
/// rank 0; PMI's text gives the map back.
inline void check_map(const launch::TaskMap& map) {
  std::vector<std::uint32_t> on_node(map.nodes(), 0);
  std::uint32_t nodes_seen = 0;
  for (std::uint32_t rank = 0; rank < map.size(); ++rank) {
    const std::uint32_t node = map.node_of(rank);
    require(node < map.nodes(), "a rank is on a node of the step");
    if (on_node[node] == 0) require(map.node_rank_of(node) == nodes_seen++, "nodes are numbered by their lowest rank");
    require(map.local_rank_of(rank) == on_node[node]++, "local ranks count up from 0");
  }
  require(nodes_seen == map.nodes(), "every node has a rank");
  for (std::uint32_t node = 0; node < map.nodes(); ++node) {
    require(map.tasks_on(node) == on_node[node] && on_node[node] <= map.most_tasks_on_a_node(), "tasks are counted");
    require(map.node_at(map.node_rank_of(node)) == node, "node_at() is the inverse of node_rank_of()");
    const auto uniform = map.uniform_tasks_per_node();
    require(!uniform || *uniform == on_node[node], "a uniform number is every node's");
  }
  const auto again = launch::TaskMap::parse(map.to_string(), map.size(), map.nodes());
  require(again && *again == map, "PMI's text gives the same map");
}

}  // namespace amldist::fuzz
