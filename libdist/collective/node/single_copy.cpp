// The parts that the single-copy algorithms share: a round in which ranks show addresses, the fetching of data from the
// other process, and a round after which no rank reads any more.
#include <cstring>

#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::show(const void* send, const void* recv, const calls::Blocks* blocks) {
  slot_channel_.use_slots(slot_channel_.slot_bytes(), SIZE_MAX);
  if (auto status = slot_channel_.begin(); !status) return status;
  for (std::uint32_t r = 0; blocks != nullptr && r < slot_channel_.size(); ++r) {
    const std::uint64_t offset = blocks->offset(r);
    std::memcpy(slot_channel_.own_slot() + r * sizeof offset, &offset, sizeof offset);
  }
  const Offer own = {Mode::single_copy, reinterpret_cast<std::uintptr_t>(send), reinterpret_cast<std::uintptr_t>(recv)};
  std::memcpy(slot_channel_.own_line(), &own, sizeof own);
  slot_channel_.publish();
  return {};
}

Result<void> NodeCollectives::finish_reading() {
  if (auto status = slot_channel_.begin(); !status) return status;
  slot_channel_.publish();
  return slot_channel_.await_all();
}

Result<void> NodeCollectives::finish_reading(std::uint32_t owner) {
  if (slot_channel_.rank() == owner) return finish_reading();
  if (auto status = slot_channel_.begin(); !status) return status;
  slot_channel_.publish();
  return {};
}

Result<void> NodeCollectives::fetch(std::uint32_t rank, std::byte* to, std::uint64_t from, std::size_t bytes) {
  const auto done = peers_->read(rank, to, from, bytes);
  if (done && slot_channel_.has_given_up(rank)) return slot_channel_.cannot_reach(rank, "it has given up the call");
  if (done) return {};
  if (done.error().code == Errc::invalid_argument) {
    write_to_each_page(to, bytes);
    return slot_channel_.has_bad_buffer(rank, bytes, done.error().message);
  }
  return slot_channel_.cannot_reach(rank, done.error().message);
}

}  // namespace amldist::collective
