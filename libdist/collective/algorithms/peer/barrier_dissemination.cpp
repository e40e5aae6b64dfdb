// Barrier: dissemination. In step k a rank signals the rank 2^k after it and waits for the rank 2^k before it.
//
// Steps: ceil(log2 n), without data. Source: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier
// Synchronization", International Journal of Parallel Programming 17(1), 1988.
#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::barrier() {
  const std::size_t size = group_.size();
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    const std::size_t to = (group_.own + distance) % size;
    const std::size_t from = (group_.own + size - distance) % size;
    if (auto status = swap(to, nullptr, 0, from, nullptr, 0); !status) return status;
  }
  return {};
}

}  // namespace amldist::collective
