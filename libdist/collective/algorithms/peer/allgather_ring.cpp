// All-gather: ring. In each step a rank passes the block that it received last to the next rank.
//
// Steps: n - 1; a rank receives every block once. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
// Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allgather_ring(std::byte* recv, const calls::Blocks& blocks, std::size_t unit) {
  const std::size_t size = group_.size();
  const auto place = [&](std::size_t r) { return recv + blocks.offset(r) * unit; };
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done = swap((group_.own + 1) % size, place(out), blocks.count(out) * unit, (group_.own + size - 1) % size,
                     place(in), blocks.count(in) * unit);
    if (!done) return done;
  }
  return {};
}

}  // namespace amldist::collective
