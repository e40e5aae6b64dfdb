// Scatter: the root publishes the blocks in its slot, every rank copies its own; pipelined in pieces.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

/// In a single copy: every rank fetches its block from the root, all at once.
Result<void> NodeCollectives::scatter_fetched(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                              std::size_t unit, std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  if (auto shown = show(send, nullptr); !shown) return shown;
  if (own == root) {
    const std::size_t bytes = blocks.count(own) * unit;
    copy(recv, send + blocks.offset(own) * unit, bytes, store_for(bytes));
    return finish_reading();
  }
  if (auto came = slot_channel_.await(root); !came) return came;
  const std::uint64_t from = offer_of(root, 0).send + blocks.offset(own) * unit;
  if (auto got = fetch(root, recv, from, blocks.count(own) * unit); !got) return got;
  return finish_reading(root);
}

Result<void> NodeCollectives::scatter(const std::byte* send, std::byte* recv, const Blocks& blocks, std::size_t unit,
                                      std::uint32_t root) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  return in_better_way(tuning::SingleCopy::scatter, longest * slot_channel_.size(), [&](bool fetches) {
    return fetches ? scatter_fetched(send, recv, blocks, unit, root) : scatter_staged(send, recv, blocks, unit, root);
  });
}

Result<void> NodeCollectives::scatter_staged(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                             std::size_t unit, std::uint32_t root) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t piece = slot_channel_.slot_bytes() / slot_channel_.size() / 64 * 64;
  const Store store = store_for(longest);
  if (own == root) copy(recv, send + blocks.offset(own) * unit, blocks.count(own) * unit, store);
  return pipeline(
      pieces_of(longest, piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; own == root && r < slot_channel_.size(); ++r) {
          if (r == own) continue;
          copy_for_others(slot_channel_.own_slot() + r * piece, send + blocks.offset(r) * unit + i * piece,
                          part_of(blocks.count(r) * unit, i, piece));
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (own == root) return {};
        if (auto came = slot_channel_.await(root, back); !came) return came;
        copy(recv + i * piece, slot_channel_.slot_of(root, back) + own * piece,
             part_of(blocks.count(own) * unit, i, piece), store);
        return {};
      });
}

}  // namespace amldist::collective
