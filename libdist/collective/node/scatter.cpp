// Scatter: the root publishes the blocks in its slot, every rank copies its own; pipelined in pieces. Short blocks take
// a round without a slot.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

/// In a single copy: every rank fetches its block from the root, all at once.
Result<void> NodeCollectives::scatter_fetched(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                              std::size_t unit, std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  if (auto status = show(send, nullptr); !status) return status;
  if (own == root) {
    const std::size_t bytes = blocks.count(own) * unit;
    copy(recv, send + blocks.offset(own) * unit, bytes, store_for(bytes));
    return finish_reading();
  }
  if (auto status = slot_channel_.await(root); !status) return status;
  const std::uint64_t from = offer_of(root, 0).send + blocks.offset(own) * unit;
  if (auto status = fetch(root, recv, from, blocks.count(own) * unit); !status) return status;
  return finish_reading(root);
}

Result<void> NodeCollectives::scatter_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                            std::size_t unit, std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  const std::uint32_t ranks = slot_channel_.size();
  const std::size_t longest = longest_of(blocks, ranks) * unit;
  const std::size_t all = longest * (ranks - 1);
  if (auto status = slot_channel_.begin_short(); !status) return status;
  if (own != root) {
    slot_channel_.publish();
    if (auto status = slot_channel_.await_stream(root); !status) return status;
    copy(recv, slot_channel_.place_of(root, all) + part_for(own, root) * longest, blocks.count(own) * unit);
    return {};
  }
  publish_short(all, [&](std::byte* place) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (r != own)
        copy_for_others(place + part_for(r, own) * longest, send + blocks.offset(r) * unit, blocks.count(r) * unit);
    }
  });
  copy(recv, send + blocks.offset(own) * unit, blocks.count(own) * unit);
  return {};
}

Result<void> NodeCollectives::scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                      std::size_t unit, std::uint32_t root) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  if (is_short_for_each(longest)) return scatter_short(send, recv, blocks, unit, root);
  if (auto status = tune_staging(longest * slot_channel_.size()); !status) return status;
  return run_faster_variant(tuning::SingleCopy::scatter, longest * slot_channel_.size(), [&](bool fetches) {
    return fetches ? scatter_fetched(send, recv, blocks, unit, root) : scatter_staged(send, recv, blocks, unit, root);
  });
}

Result<void> NodeCollectives::scatter_staged(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, std::uint32_t root) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t readers = slot_channel_.size() - 1;
  const std::size_t piece =
      use_slots_by_rank(std::min(longest, one_way_piece(longest)), longest * readers, SlotChannel::Flow::one_way);
  const Store store = store_for(longest);
  return pipeline(
      pieces_of(longest, piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; own == root && r < slot_channel_.size(); ++r) {
          if (r == own) continue;
          copy_for_others(slot_channel_.own_slot() + part_for(r, own) * piece,
                          send + blocks.offset(r) * unit + i * piece, part_of(blocks.count(r) * unit, i, piece));
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (own == root) {
          copy_piece(recv, block_of(send, blocks, own, unit), blocks.count(own) * unit, i, piece, store);
          return {};
        }
        if (auto status = slot_channel_.await(root, back); !status) return status;
        const std::size_t part = part_of(blocks.count(own) * unit, i, piece);
        if (part == 0) return {};
        copy(recv + i * piece, slot_channel_.slot_of(root, back) + part_for(own, root) * piece, part, store);
        return {};
      });
}

}  // namespace amldist::collective
