// Which ranks of a communicator share a node.
#pragma once

#include <cstdint>
#include <vector>

namespace amldist::collective {

/// Nodes are in the order of their lowest rank; the ranks of each are in ascending order.
struct Topology {
  std::vector<std::vector<int>> nodes;  ///< ranks of each node
  std::size_t own_node = 0;
  std::size_t own_index = 0;  ///< of this rank on its node

  /// Made from a number for every rank's node.
  [[nodiscard]] static Topology of(const std::vector<std::uint32_t>& node_of_rank, int rank);

  [[nodiscard]] const std::vector<int>& own_ranks() const { return nodes[own_node]; }
  [[nodiscard]] std::size_t fewest_on_a_node() const;
  [[nodiscard]] std::size_t most_on_a_node() const;
  [[nodiscard]] std::size_t node_of(int rank) const;
};

}  // namespace amldist::collective
