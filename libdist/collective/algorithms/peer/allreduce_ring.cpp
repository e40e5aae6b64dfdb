// All-reduce: ring. In a first turn of the ring, every rank adds its own data to the slice that arrives; in a second
// turn the finished slices are passed on.
//
// Steps: 2 (n - 1); a rank sends 2 (n - 1) / n of the data. Source: P. Patarasuk, X. Yuan, "Bandwidth Optimal
// All-reduce Algorithms for Clusters of Workstations", Journal of Parallel and Distributed Computing 69(2), 2009.
#include <algorithm>

#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allreduce_ring(const calls::Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t next = (group_.own + 1) % size;
  const std::size_t previous = (group_.own + size - 1) % size;
  const std::size_t each = (what.count + size - 1) / size;
  const auto begin = [&](std::size_t slice) { return std::min(what.count, slice * each); };
  const auto count = [&](std::size_t slice) { return begin(slice + 1) - begin(slice); };
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    const std::byte* const given = (step == 0 ? what.send : what.recv) + begin(out) * unit;
    auto done = swap_and_combine(next, given, count(out), previous, what.send + begin(in) * unit,
                                 what.recv + begin(in) * unit, count(in), what, true);
    if (!done) return done;
  }
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + 1 + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done = swap(next, what.recv + begin(out) * unit, count(out) * unit, previous, what.recv + begin(in) * unit,
                     count(in) * unit);
    if (!done) return done;
  }
  return {};
}

}  // namespace amldist::collective
