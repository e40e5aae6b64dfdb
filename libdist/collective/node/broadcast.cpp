// Broadcast: the root publishes pieces in its cache line or slot, the other ranks copy them; pipelined.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::broadcast(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  if (auto known = look_at_staging(bytes); !known) return known;
  const bool sends = slot_channel_.rank() == root;
  const std::size_t piece = bytes <= SlotChannel::line_data ? SlotChannel::line_data : slot_channel_.slot_bytes() / 4;
  const bool in_line = piece == SlotChannel::line_data;
  const Store store = store_for(bytes);
  return pipeline(
      pieces_of(bytes, piece),
      [&](std::size_t i) {
        if (sends)
          copy_for_others(in_line ? slot_channel_.own_line() : slot_channel_.own_slot(), buffer + i * piece,
                          part_of(bytes, i, piece));
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (sends) return {};
        if (auto came = slot_channel_.await(root, back); !came) return came;
        copy(buffer + i * piece, in_line ? slot_channel_.line_of(root, back) : slot_channel_.slot_of(root, back),
             part_of(bytes, i, piece), store);
        return {};
      });
}

}  // namespace amldist::collective
