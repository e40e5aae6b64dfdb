// Reduce: a binomial tree, pipelined in segments.
//
// Steps: ceil(log2 n) for each segment. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include <algorithm>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::reduce(const calls::Reduction& what, std::size_t root) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t own = (group_.own + size - root) % size;
  const std::size_t most = tuning::longest_segment / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    const std::size_t count = std::min(most, what.count - at);
    const std::size_t bytes = count * unit;
    std::byte* const other = scratch(2 * bytes);
    std::byte* const data = own == 0 ? what.recv + at * unit : other + bytes;
    const std::byte* mine = what.send + at * unit;
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      if ((own & distance) != 0) {
        if (auto status = send((own - distance + root) % size, mine, bytes); !status) return status;
        break;
      }
      if (own + distance >= size) continue;
      if (auto status = receive((own + distance + root) % size, other, bytes); !status) return status;
      combine(data, mine, other, count, what, false);
      mine = data;
    }
    if (own == 0 && mine != data) copy_bytes(data, mine, bytes);
  }
  return {};
}

}  // namespace amldist::collective
