// All-reduce and reduce of short messages: one round. Every rank publishes its data (in the cache line itself, beside
// the round's number, if it fits, else in its slot), and every rank folds all of it.
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

Result<void> NodeCollectives::reduce_at_once(const Reduction& what, int root) {
  if (auto begun = slot_channel_.begin(); !begun) return begun;
  publish(what);
  const bool folds = root == everybody || static_cast<std::uint32_t>(root) == slot_channel_.rank();
  return folds ? finish_allreduce(what) : Result<void>();
}

bool NodeCollectives::start_allreduce(const Reduction& what) {
  if (what.count * size_of(what.type) >= tuning::one_round_below || !slot_channel_.try_begin()) return false;
  publish(what);
  return true;
}

void NodeCollectives::publish(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const bool in_line = bytes <= SlotChannel::line_data;
  if (in_line) copy_bytes(slot_channel_.own_line(), what.send, bytes);
  else copy_for_others(slot_channel_.own_slot(), what.send, bytes);
  slot_channel_.publish();
  if (in_line) slot_channel_.prefetch_next_line();
}

Result<void> NodeCollectives::finish_allreduce(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  slot_channel_.delay_polling(bytes);
  if (auto came = slot_channel_.await_all(); !came) return came;
  if (what.count == 0) return {};
  const bool in_line = bytes <= SlotChannel::line_data;
  const std::byte* shown = in_line ? slot_channel_.line_of(0) : slot_channel_.slot_of(0);
  const std::size_t to_the_next = in_line ? SlotChannel::between_lines() : slot_channel_.between_slots();
  for (const void*& source : sources_) {
    source = shown;
    shown += to_the_next;
  }
  sources_[slot_channel_.rank()] = what.send;
  kernels_.fold({what.recv, nullptr, sources_.data(), sources_.size(), what.count, what.divisor, Store::cached},
                what.type, what.op);
  return {};
}

}  // namespace amldist::collective
