// Gather: every rank publishes its block in its slot, the root copies them; pipelined in pieces. Short blocks take a
// round without a slot.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::gather_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                           std::size_t unit, std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  if (auto status = slot_channel_.begin_short(); !status) return status;
  if (own != root) {
    publish_short(longest, [&](std::byte* place) { copy_for_others(place, send, blocks.count(own) * unit); });
    return {};
  }
  slot_channel_.publish();
  copy(recv + blocks.offset(own) * unit, send, blocks.count(own) * unit);
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    if (r == own) continue;
    if (auto status = slot_channel_.await_stream(r); !status) return status;
    copy(recv + blocks.offset(r) * unit, slot_channel_.place_of(r, longest), blocks.count(r) * unit);
  }
  return {};
}

Result<void> NodeCollectives::gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, std::uint32_t root) {
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t longest = longest_of(blocks, slot_channel_.size()) * unit;
  if (longest <= SlotChannel::short_data) return gather_short(send, recv, blocks, unit, root);
  if (auto status = tune_staging(longest * slot_channel_.size()); !status) return status;
  const std::size_t piece = one_way_piece(longest);
  slot_channel_.use_slots(blocks.are_equal() ? std::min(longest, piece) : piece, longest * (slot_channel_.size() - 1),
                          SlotChannel::Flow::one_way);
  const Store store = store_for(longest * slot_channel_.size());
  return pipeline(
      pieces_of(longest, piece),
      [&](std::size_t i) {
        const std::size_t part = part_of(blocks.count(own) * unit, i, piece);
        if (own != root && part != 0) copy_for_others(slot_channel_.own_slot(), send + i * piece, part);
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (own != root) return {};
        copy_piece(block_of(recv, blocks, own, unit), send, blocks.count(own) * unit, i, piece, store);
        for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
          if (r == own) continue;
          if (auto status = slot_channel_.await(r, back); !status) return status;
          copy(recv + blocks.offset(r) * unit + i * piece, slot_channel_.slot_of(r, back),
               part_of(blocks.count(r) * unit, i, piece), store);
        }
        return {};
      });
}

}  // namespace amldist::collective
