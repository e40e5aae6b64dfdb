// All-reduce and reduce of short messages: one round. Every rank publishes its data (in the cache line itself, beside
// the round's number, if it fits), and every rank folds all of it; of a reduce, only the root.
//
// Waits: 1. A rank reads the data of all ranks. All-reduce has two phases, so that a rank's part is on its way before
// the call is recorded (decision 15). Source: R. Graham, G. Shipman, "MPI Support for Multi-core Architectures:
// Optimized Shared Memory Collectives", EuroPVM/MPI 2008.
#include <cstring>

#include "collective/kernels/copy_bytes.hpp"
#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::reduce_at_once(const calls::Reduction& what, int root) {
  const bool is_short = root != all_ranks && what.count * size_of(what.type) <= SlotChannel::short_data;
  if (auto status = is_short ? slot_channel_.begin_short() : slot_channel_.begin(); !status) return status;
  publish(what);
  if (root == all_ranks) return finish_allreduce(what);
  if (static_cast<std::uint32_t>(root) != slot_channel_.rank()) return {};
  if (auto status = await_stream_of_all(); !status) return status;
  fold_shown(what);
  return {};
}

Result<void> NodeCollectives::await_stream_of_all() {
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    if (r == slot_channel_.rank()) continue;
    if (auto status = slot_channel_.await_stream(r); !status) return status;
  }
  return {};
}

bool NodeCollectives::start_allreduce(const calls::Reduction& what) {
  if (what.count * size_of(what.type) >= tuning::one_round_below || !slot_channel_.try_begin()) return false;
  publish(what);
  return true;
}

void NodeCollectives::publish(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const bool in_line = bytes <= SlotChannel::line_data;
  if (bytes > SlotChannel::short_data) slot_channel_.use_slots(bytes, 2 * bytes);
  if (in_line) copy_bytes(slot_channel_.own_line(), what.send, bytes);
  else copy_for_others(slot_channel_.own_place(bytes), what.send, bytes);
  slot_channel_.publish();
  if (in_line) slot_channel_.prefetch_next_line();
}

Result<void> NodeCollectives::finish_allreduce(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  slot_channel_.delay_polling(bytes);
  if (auto status = slot_channel_.await_all_places(bytes); !status) return status;
  fold_shown(what);
  return {};
}

void NodeCollectives::fold_shown(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  if (bytes == 0) return;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) sources_[r] = slot_channel_.place_of(r, bytes);
  sources_[slot_channel_.rank()] = what.send;
  kernels_.fold({what.recv, nullptr, sources_.data(), sources_.size(), what.count, what.divisor, Store::cached},
                what.type, what.op);
}

}  // namespace amldist::collective
