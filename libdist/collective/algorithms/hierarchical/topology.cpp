#include "collective/algorithms/hierarchical/topology.hpp"

#include <algorithm>
#include <unordered_map>

namespace amldist::collective {

Topology Topology::of(const std::vector<std::uint32_t>& node_of_rank, int rank) {
  Topology out;
  std::unordered_map<std::uint32_t, std::size_t> index;
  for (int r = 0; r < static_cast<int>(node_of_rank.size()); ++r) {
    const auto [found, is_new] = index.try_emplace(node_of_rank[static_cast<std::size_t>(r)], out.nodes.size());
    if (is_new) out.nodes.emplace_back();
    auto& ranks = out.nodes[found->second];
    if (r == rank) {
      out.own_node = found->second;
      out.own_index = ranks.size();
    }
    ranks.push_back(r);
  }
  return out;
}

std::size_t Topology::fewest_on_a_node() const {
  return std::ranges::min_element(nodes, {}, [](const auto& ranks) { return ranks.size(); })->size();
}

std::size_t Topology::most_on_a_node() const {
  return std::ranges::max_element(nodes, {}, [](const auto& ranks) { return ranks.size(); })->size();
}

std::size_t Topology::node_of(int rank) const {
  const auto found =
      std::ranges::find_if(nodes, [rank](const auto& ranks) { return std::ranges::binary_search(ranks, rank); });
  return static_cast<std::size_t>(found - nodes.begin());
}

}  // namespace amldist::collective
