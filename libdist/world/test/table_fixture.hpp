// Tables of made-up worlds.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "world/bootstrap/rank_table.hpp"

namespace amldist::world::testing {

/// `nodes` nodes of `each` ranks, in blocks; the first rank of a node leads it.
inline RankTable table_of(std::uint32_t nodes, std::uint32_t each, Ipv4 root = {}) {
  std::vector<world::TableNode> entries;
  std::vector<world::TableRank> ranks;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const std::string name = "n" + std::to_string(node);
    entries.push_back({name, name, node * each, Ipv4{node}});
    for (std::uint32_t i = 0; i < each; ++i) ranks.push_back({node, static_cast<std::uint16_t>(1000 + i)});
  }
  auto table = RankTable::read(table_bytes(42, entries, ranks), nodes * each, root);
  return std::move(*table);
}

inline std::vector<std::uint32_t> all_ranks(std::uint32_t size) {
  std::vector<std::uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

}  // namespace amldist::world::testing
