// The binomial tree of a scatter. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstddef>

namespace amldist::collective {

/// A rank's place in the tree, in ranks counted from the root on: it has the blocks of `blocks` ranks, itself the
/// first, and its children are 1, 2, 4 ... ranks behind it, as far as `blocks` reaches.
struct BlockTree {
  std::size_t own;     ///< 0: the root
  std::size_t blocks;  ///< of this rank and those below it
  std::size_t parent;

  constexpr BlockTree(std::size_t ranks, std::size_t rank, std::size_t root) noexcept
      : own((rank + ranks - root) % ranks),
        blocks(own == 0 ? ranks : std::min(own & (~own + 1), ranks - own)),
        parent(own & (own - 1)) {}
  /// Blocks of the child that is `distance` behind this rank.
  [[nodiscard]] constexpr std::size_t blocks_of_child(std::size_t distance) const noexcept {
    return std::min(distance, blocks - distance);
  }
};

}  // namespace amldist::collective
