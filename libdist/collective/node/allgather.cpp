// All-gather: every rank publishes its block in its slot and copies those of the other ranks; pipelined in pieces.
// Short blocks take a round without a slot.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

/// In a single copy: every rank fetches the others' blocks.
Result<void> NodeCollectives::allgather_fetched(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                std::size_t unit) {
  const std::uint32_t own = slot_channel_.rank();
  if (auto status = show(send, nullptr); !status) return status;
  const Store store = store_for(longest_of(blocks, slot_channel_.size()) * unit * slot_channel_.size());
  copy(block_of(recv, blocks, own, unit), send, blocks.count(own) * unit, store);
  for (std::uint32_t k = 1; k < slot_channel_.size(); ++k) {
    const std::uint32_t r = (own + k) % slot_channel_.size();
    if (auto status = slot_channel_.await(r); !status) return status;
    std::byte* const to = block_of(recv, blocks, r, unit);
    if (auto status = fetch(r, to, offer_of(r, 0).send, blocks.count(r) * unit); !status) return status;
  }
  return finish_reading();
}

Result<void> NodeCollectives::allgather_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                              std::size_t unit) {
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  if (auto status = slot_channel_.begin_short(); !status) return status;
  publish_short(longest, [&](std::byte* place) { copy_for_others(place, send, blocks.count(own) * unit); });
  copy(block_of(recv, blocks, own, unit), send, blocks.count(own) * unit);
  if (auto status = slot_channel_.await_all_places(longest); !status) return status;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    if (r != own) copy(block_of(recv, blocks, r, unit), slot_channel_.place_of(r, longest), blocks.count(r) * unit);
  }
  return {};
}

Result<void> NodeCollectives::allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                        std::size_t unit) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  if (longest <= SlotChannel::short_data) return allgather_short(send, recv, blocks, unit);
  if (auto status = tune_staging(longest); !status) return status;
  return run_faster_variant(tuning::SingleCopy::allgather, longest * slot_channel_.size(), [&](bool fetches) {
    return fetches ? allgather_fetched(send, recv, blocks, unit) : allgather_staged(send, recv, blocks, unit);
  });
}

Result<void> NodeCollectives::allgather_staged(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                               std::size_t unit) {
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t piece = slot_channel_.slot_bytes() / 4;
  slot_channel_.use_slots(blocks.are_equal() ? std::min(longest, piece) : piece, longest * (slot_channel_.size() + 1));
  const Store store = store_for(longest * slot_channel_.size());
  return pipeline(
      pieces_of(longest, piece),
      [&](std::size_t i) {
        const std::size_t part = part_of(blocks.count(own) * unit, i, piece);
        if (part != 0) copy_for_others(slot_channel_.own_slot(), send + i * piece, part);
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        copy_piece(block_of(recv, blocks, own, unit), send, blocks.count(own) * unit, i, piece, store);
        for (std::uint32_t k = 1; k < slot_channel_.size(); ++k) {
          const std::uint32_t r = (own + k) % slot_channel_.size();
          if (auto status = slot_channel_.await(r, back); !status) return status;
          const std::size_t part = part_of(blocks.count(r) * unit, i, piece);
          if (part == 0) continue;
          copy(block_of(recv, blocks, r, unit) + i * piece, slot_channel_.slot_of(r, back), part, store);
        }
        return {};
      });
}

}  // namespace amldist::collective
