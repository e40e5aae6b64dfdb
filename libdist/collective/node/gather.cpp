// Gather: every rank publishes its block in its slot, the root copies them; pipelined in pieces.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::gather(const std::byte* send, std::byte* recv, const Blocks& blocks, std::size_t unit,
                                     std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t piece = slot_channel_.slot_bytes() / 4;
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  const Store store = store_for(longest * slot_channel_.size());
  if (own == root) copy(recv + blocks.offset(own) * unit, send, blocks.count(own) * unit, store);
  return pipeline(
      pieces_of(longest, piece),
      [&](std::size_t i) {
        if (own != root)
          copy_for_others(slot_channel_.own_slot(), send + i * piece, part_of(blocks.count(own) * unit, i, piece));
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        for (std::uint32_t r = 0; own == root && r < slot_channel_.size(); ++r) {
          if (r == own) continue;
          if (auto came = slot_channel_.await(r, back); !came) return came;
          copy(recv + blocks.offset(r) * unit + i * piece, slot_channel_.slot_of(r, back),
               part_of(blocks.count(r) * unit, i, piece), store);
        }
        return {};
      });
}

}  // namespace amldist::collective
