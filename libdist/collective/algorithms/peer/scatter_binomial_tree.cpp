// Scatter: a binomial tree. A rank receives the blocks of all ranks below it, and sends each child its part.
//
// Steps: ceil(log2 n), with as many messages at the root. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization
// of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include <bit>

#include "collective/algorithms/peer/block_tree.hpp"
#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::scatter_binomial_tree(const std::byte* send_buffer, std::byte* recv, std::size_t block,
                                                    std::size_t root) {
  const std::size_t size = group_.size();
  const BlockTree tree(size, group_.own, root);
  const auto rank_at = [&](std::size_t place) { return (place + root) % size; };
  if (tree.blocks == 1) return receive(rank_at(tree.parent), recv, block);
  const std::byte* all = send_buffer;
  if (tree.own != 0) {
    std::byte* const below = scratch(tree.blocks * block);
    if (auto status = receive(rank_at(tree.parent), below, tree.blocks * block); !status) return status;
    all = below;
  } else if (root != 0) {  // in the order of the tree
    std::byte* const turned = scratch(size * block);
    copy_bytes(turned, send_buffer + root * block, (size - root) * block);
    copy_bytes(turned + (size - root) * block, send_buffer, root * block);
    all = turned;
  }
  sends_.clear();
  for (std::size_t distance = std::bit_ceil(tree.blocks) / 2; distance != 0; distance /= 2)
    sends_.push_back(
        message(rank_at(tree.own + distance), all + distance * block, tree.blocks_of_child(distance) * block));
  copy_bytes(recv, all, block);
  return transport_.exchange(sends_, {}, *watchdog_);
}

}  // namespace amldist::collective
