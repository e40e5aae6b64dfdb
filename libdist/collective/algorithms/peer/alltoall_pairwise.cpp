// All-to-all: every pair of ranks exchanges its two blocks directly. Out of place all messages are under way at once;
// in place the pairs take turns (pairwise exchange), through a segment of scratch memory.
//
// Steps: 1, or n in place. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005.
#include <algorithm>
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::alltoall(const std::byte* send_buffer, const Blocks& send_blocks, std::byte* recv,
                                       const Blocks& recv_blocks, std::size_t unit) {
  const std::size_t size = group_.size();
  const auto from = [&](std::size_t r) { return send_buffer + send_blocks.offset(r) * unit; };
  const auto to = [&](std::size_t r) { return recv + recv_blocks.offset(r) * unit; };
  copy_bytes(to(group_.own), from(group_.own), send_blocks.count(group_.own) * unit);
  if (send_buffer != recv) {
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (std::size_t k = 1; k < size; ++k) {
      const std::size_t r = (group_.own + k) % size;
      const std::size_t l = (group_.own + size - k) % size;
      sends.push_back(message(r, from(r), send_blocks.count(r) * unit));
      receives.push_back(message(l, to(l), recv_blocks.count(l) * unit));
    }
    return transport_.exchange(sends, receives, *watchdog_);
  }
  for (std::size_t k = 0; k < size; ++k) {  // pairs (a, b) with a + b = k modulo size meet in the same step
    const std::size_t partner = (k + size - group_.own) % size;
    if (partner == group_.own) continue;
    const std::size_t bytes = send_blocks.count(partner) * unit;
    for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += tuning::longest_segment) {
      const std::size_t part = std::min(tuning::longest_segment, bytes - at);
      std::byte* const other = scratch(part);
      if (auto done = swap(partner, to(partner) + at, part, partner, other, part); !done) return done;
      copy_bytes(to(partner) + at, other, part);
    }
  }
  return {};
}

}  // namespace amldist::collective
