// All-gather: recursive doubling. In each step, partners at twice the distance exchange all blocks that they have.
//
// Ranks: a power of two. Steps: log2 n; a rank receives every block once. Source: R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allgather_recursive_doubling(std::byte* recv, const calls::Blocks& blocks,
                                                           std::size_t unit) {
  for (std::size_t distance = 1; distance < group_.size(); distance *= 2) {
    const std::size_t mine = group_.own & ~(distance - 1);  // first of the blocks that this rank has
    const std::size_t theirs = mine ^ distance;
    const auto bytes = [&](std::size_t first) {
      const std::size_t last = first + distance - 1;
      return (blocks.offset(last) + blocks.count(last) - blocks.offset(first)) * unit;
    };
    const std::size_t partner = group_.own ^ distance;
    auto done = swap(partner, recv + blocks.offset(mine) * unit, bytes(mine), partner,
                     recv + blocks.offset(theirs) * unit, bytes(theirs));
    if (!done) return done;
  }
  return {};
}

}  // namespace amldist::collective
