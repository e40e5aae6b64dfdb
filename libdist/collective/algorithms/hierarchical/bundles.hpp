// Bundles: the blocks of a node's ranks as one message. Internal to the hierarchical algorithms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "calls/blocks.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

/// This rank's place among the node's ranks.
inline std::uint32_t index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

/// Whether the blocks of these ranks are contiguous and in order.
inline bool are_joined(const std::vector<int>& ranks, const calls::Blocks& blocks) {
  std::size_t next = blocks.offset(static_cast<std::size_t>(ranks.front()));
  for (const int rank : ranks) {
    if (blocks.offset(static_cast<std::size_t>(rank)) != next) return false;
    next += blocks.count(static_cast<std::size_t>(rank));
  }
  return true;
}

/// Whether the nodes' ranks, one node after the other, are 0, 1, 2 ...
inline bool are_in_rank_order(const std::vector<std::vector<int>>& nodes) {
  int next = 0;
  for (const auto& ranks : nodes) {
    for (const int rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return true;
}

/// Copies the blocks of these ranks into a bundle, or out of one.
inline void pack(const std::vector<int>& ranks, const std::byte* from, const calls::Blocks& blocks, std::size_t unit,
                 std::byte* to) {
  for (const int rank : ranks) {
    const auto r = static_cast<std::size_t>(rank);
    copy_bytes(to, from + blocks.offset(r) * unit, blocks.count(r) * unit);
    to += blocks.count(r) * unit;
  }
}
inline void unpack(const std::vector<int>& ranks, const std::byte* from, std::byte* to, const calls::Blocks& blocks,
                   std::size_t unit) {
  for (const int rank : ranks) {
    const auto r = static_cast<std::size_t>(rank);
    copy_bytes(to + blocks.offset(r) * unit, from, blocks.count(r) * unit);
    from += blocks.count(r) * unit;
  }
}

}  // namespace amldist::collective
