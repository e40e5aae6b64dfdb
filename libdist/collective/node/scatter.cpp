// Scatter: the root publishes the blocks in its slot, every rank copies its own; pipelined in pieces.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::scatter(const std::byte* send, std::byte* recv, const Blocks& blocks, std::size_t unit,
                                      std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t piece = slot_channel_.slot_bytes() / slot_channel_.size() / 64 * 64;
  if (own == root) copy(recv, send + blocks.offset(own) * unit, blocks.count(own) * unit);
  return pipeline(
      pieces_of(longest_of(blocks, slot_channel_.size()) * unit, piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; own == root && r < slot_channel_.size(); ++r) {
          if (r == own) continue;
          copy_whole_lines(slot_channel_.own_slot() + r * piece, send + blocks.offset(r) * unit + i * piece,
                           part_of(blocks.count(r) * unit, i, piece));
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (own == root) return {};
        if (auto came = slot_channel_.await(root, back); !came) return came;
        copy(recv + i * piece, slot_channel_.slot_of(root, back) + own * piece,
             part_of(blocks.count(own) * unit, i, piece));
        return {};
      });
}

}  // namespace amldist::collective
