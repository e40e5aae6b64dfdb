// All-reduce: recursive doubling. In each step, partners at twice the distance exchange all data and combine it.
//
// Ranks beyond the largest power of two give their data to a partner first and get the result back. Steps: log2 n, or
// floor(log2 n) + 2; all data in each. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
// Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include <bit>

#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allreduce_recursive_doubling(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::size_t core = std::bit_floor(group_.size());
  const std::size_t own = group_.own;
  if (own >= core) {
    if (auto status = send(own - core, what.send, bytes); !status) return status;
    return receive(own - core, what.recv, bytes);
  }
  std::byte* const other = scratch(bytes);
  const std::byte* mine = what.send;
  const bool has_extra = own + core < group_.size();
  if (has_extra) {
    if (auto status = receive(own + core, other, bytes); !status) return status;
    combine(what.recv, mine, other, what.count, what, false);
    mine = what.recv;
  }
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    const std::size_t partner = own ^ distance;
    const Message sent = message(partner, mine, bytes);
    Message received = message(partner, other, bytes);
    received.has_room = true;
    if (auto status = transport_.exchange({&sent, 1}, {&received, 1}, *watchdog_); !status) return status;
    combine(what.recv, mine, other, what.count, what, partner < own);
    mine = what.recv;
  }
  return has_extra ? send(own + core, mine, bytes) : Result<void>();
}

}  // namespace amldist::collective
