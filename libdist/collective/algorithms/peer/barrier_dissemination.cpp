// Barrier: dissemination. In step k a rank signals the rank 2^k after it and waits for the rank 2^k before it. If the
// number of ranks is a power of two, ranks that are 2^k apart signal each other instead: so each deals with half as
// many.
//
// Steps: ceil(log2 n), without data. Sources: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier
// Synchronization", International Journal of Parallel Programming 17(1), 1988; for pairs E. Brooks, "The Butterfly
// Barrier", same journal 15(4), 1986.
#include <bit>

#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::barrier() {
  const std::size_t size = group_.size();
  const bool in_pairs = std::has_single_bit(size);
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    const std::size_t to = in_pairs ? group_.own ^ distance : (group_.own + distance) % size;
    const std::size_t from = in_pairs ? to : (group_.own + size - distance) % size;
    if (auto status = swap(to, nullptr, 0, from, nullptr, 0); !status) return status;
  }
  return {};
}

}  // namespace amldist::collective
