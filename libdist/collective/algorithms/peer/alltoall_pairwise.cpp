// All-to-all: every pair of ranks exchanges its two blocks directly. Out of place all messages are under way at once;
// in place the pairs take turns (pairwise exchange), through a segment of scratch memory. Blocks travel in segments
// either way, since some ranks may work in place and others not.
//
// Steps: 1, or n in place. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005.
#include <algorithm>
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                       const calls::Blocks& recv_blocks, std::size_t unit) {
  copy_bytes(block_of(recv, recv_blocks, group_.own, unit), block_of(send, send_blocks, group_.own, unit),
             send_blocks.count(group_.own) * unit);
  const int own = group_.ranks[group_.own];
  return alltoall_beyond({&own, 1}, send, send_blocks, recv, recv_blocks, unit);
}

Result<void> PeerCollectives::alltoall_beyond(std::span<const int> done, const std::byte* send,
                                              const calls::Blocks& send_blocks, std::byte* recv,
                                              const calls::Blocks& recv_blocks, std::size_t unit) {
  const auto is_left = [&](std::size_t r) { return !std::ranges::binary_search(done, group_.ranks[r]); };
  // Explicit blocks may be sent from other places, even if both buffers begin at the same address.
  if (send == recv && send_blocks.are_equal()) {
    return swap_blocks(is_left, recv, recv_blocks.count(0) * unit);
  }
  const std::size_t size = group_.size();
  sends_.clear();
  receives_.clear();
  for (std::size_t k = 1; k < size; ++k) {
    const std::size_t to = (group_.own + k) % size;
    const std::size_t from = (group_.own + size - k) % size;
    if (is_left(to)) {
      add_segments(sends_, to, block_of(send, send_blocks, to, unit), send_blocks.count(to) * unit);
    }
    if (is_left(from)) {
      add_segments(receives_, from, block_of(recv, recv_blocks, from, unit), recv_blocks.count(from) * unit);
    }
  }
  return transport_.exchange(sends_, receives_, *watchdog_);
}

/// In place, for equal blocks of this many bytes.
Result<void> PeerCollectives::swap_blocks(const std::function<bool(std::size_t)>& is_left, std::byte* buffer,
                                          std::size_t bytes) {
  const std::size_t size = group_.size();
  for (std::size_t k = 0; k < size; ++k) {  // pairs (a, b) with a + b = k modulo size exchange in the same step
    const std::size_t partner = (k + size - group_.own) % size;
    if (!is_left(partner)) continue;
    for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += tuning::longest_segment) {
      const std::size_t part = std::min(tuning::longest_segment, bytes - at);
      std::byte* const place = buffer + partner * bytes + at;
      std::byte* const other = scratch(part);
      if (auto status = swap(partner, place, part, partner, other, part); !status) return status;
      copy_bytes(place, other, part);
    }
  }
  return {};
}

void PeerCollectives::add_segments(std::vector<Message>& list, std::size_t peer, const std::byte* data,
                                   std::size_t bytes) const {
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += tuning::longest_segment) {
    add_parts(list, peer, data + at, std::min(tuning::longest_segment, bytes - at));
  }
}

}  // namespace amldist::collective
