// Broadcast: the root publishes pieces in its slot, the other ranks copy them; pipelined. A short one is a round
// without a slot. With two ranks, the other one may also fetch a long one from the root.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::broadcast_short(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  if (auto status = slot_channel_.begin_short(); !status) return status;
  if (slot_channel_.rank() == root) {
    publish_short(bytes, [&](std::byte* place) { copy_for_others(place, buffer, bytes); });
    return {};
  }
  slot_channel_.publish();
  if (auto status = slot_channel_.await_stream(root); !status) return status;
  copy(buffer, slot_channel_.place_of(root, bytes), bytes);
  return {};
}

Result<void> NodeCollectives::broadcast(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  if (bytes <= SlotChannel::short_data) return broadcast_short(buffer, bytes, root);
  if (auto status = tune_staging(bytes); !status) return status;
  return run_faster_variant(tuning::SingleCopy::broadcast, bytes, [&](bool fetches) {
    return fetches ? broadcast_fetched(buffer, bytes, root) : broadcast_staged(buffer, bytes, root);
  });
}

/// In a single copy: every other rank fetches from the root.
Result<void> NodeCollectives::broadcast_fetched(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  if (auto status = show(buffer, nullptr); !status) return status;
  if (slot_channel_.rank() == root) return finish_reading();
  if (auto status = slot_channel_.await(root); !status) return status;
  if (auto status = fetch(root, buffer, offer_of(root, 0).send, bytes); !status) return status;
  return finish_reading(root);
}

Result<void> NodeCollectives::broadcast_staged(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  const bool sends = slot_channel_.rank() == root;
  const std::size_t piece = one_way_piece(bytes);
  const Store store = store_for(bytes);
  slot_channel_.use_slots(std::min(bytes, piece), bytes, SlotChannel::Flow::one_way);
  return pipeline(
      pieces_of(bytes, piece),
      [&](std::size_t i) {
        if (sends) copy_for_others(slot_channel_.own_slot(), buffer + i * piece, part_of(bytes, i, piece));
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (sends) return {};
        if (auto status = slot_channel_.await(root, back); !status) return status;
        copy(buffer + i * piece, slot_channel_.slot_of(root, back), part_of(bytes, i, piece), store);
        return {};
      });
}

}  // namespace amldist::collective
