// Broadcast: a binomial tree, pipelined in segments.
//
// Steps: ceil(log2 n) for each segment. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include <algorithm>
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::broadcast(std::byte* buffer, std::size_t bytes, std::size_t root) {
  const std::size_t size = group_.size();
  const std::size_t own = (group_.own + size - root) % size;
  std::size_t reach = 1;  // number of ranks that have the data when this rank gets it
  while (reach <= own) reach *= 2;
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += tuning::longest_segment) {
    const std::size_t part = std::min(tuning::longest_segment, bytes - at);
    if (own != 0) {
      if (auto status = receive((own - reach / 2 + root) % size, buffer + at, part); !status) return status;
    }
    std::vector<Message> sends;
    std::size_t farthest = own == 0 ? 1 : reach;
    while (own + farthest < size) {
      sends.push_back(message((own + farthest + root) % size, buffer + at, part));
      farthest *= 2;
    }
    if (auto status = transport_.exchange(sends, {}, *watchdog_); !status) return status;
  }
  return {};
}

}  // namespace amldist::collective
