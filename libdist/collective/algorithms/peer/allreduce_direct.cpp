// All-reduce: direct exchange. Every rank sends all its data to all others, and folds everything in rank order.
//
// Steps: 1, with n - 1 messages of all the data. For little data and few ranks whose number is not a power of two.
#include <array>
#include <span>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allreduce_direct(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::size_t size = group_.size();
  std::array<Message, tuning::most_ranks_direct> sends;
  std::array<Message, tuning::most_ranks_direct> receives;
  std::array<const void*, tuning::most_ranks_direct> sources = {};
  std::byte* const parts = scratch(bytes * size);
  sources[group_.own] = what.send;
  for (std::size_t k = 1; k < size; ++k) {  // each rank begins with a different one, to spread the load
    const std::size_t peer = (group_.own + k) % size;
    sources[peer] = parts + peer * bytes;
    sends[k - 1] = message(peer, what.send, bytes);
    receives[k - 1] = message(peer, parts + peer * bytes, bytes);
  }
  auto done = transport_.exchange(std::span(sends).first(size - 1), std::span(receives).first(size - 1), *watchdog_);
  if (!done || what.count == 0) return done;
  kernels_.fold({what.recv, nullptr, sources.data(), size, what.count, 1, Store::cached}, what.type,
                sum_for_average(what.op));
  return {};
}

}  // namespace amldist::collective
