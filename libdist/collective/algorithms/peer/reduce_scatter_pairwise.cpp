// Reduce-scatter: every rank receives its block from all others, segment by segment, and folds it in rank order.
//
// Steps: 1 for each segment, with n - 1 messages (the pairwise exchange of all pairs at once). Source: R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.
#include <algorithm>
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  std::size_t longest = 0;
  for (std::size_t r = 0; r < size; ++r) longest = std::max(longest, blocks.count(r));
  const std::size_t piece = std::max<std::size_t>(1, tuning::longest_segment / unit / size);
  std::byte* const parts = scratch(piece * unit * size);
  std::vector<const void*> sources(size);
  for (std::size_t at = 0; at < std::max<std::size_t>(longest, 1); at += piece) {
    const auto part = [&](std::size_t r) { return std::min(piece, blocks.count(r) - std::min(blocks.count(r), at)); };
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (std::size_t r = 0; r < size; ++r) {
      const std::byte* const mine = what.send + (blocks.offset(r) + at) * unit;
      sources[r] = r == group_.own ? mine : parts + r * piece * unit;
      if (r == group_.own) continue;
      sends.push_back(message(r, mine, part(r) * unit));
      receives.push_back(message(r, parts + r * piece * unit, part(group_.own) * unit));
    }
    if (auto status = transport_.exchange(sends, receives, *watchdog_); !status) return status;
    if (part(group_.own) == 0) continue;
    kernels_.fold({what.recv + at * unit, nullptr, sources.data(), size, part(group_.own), 1, Store::cached}, what.type,
                  sum_for_average(what.op));
  }
  return {};
}

}  // namespace amldist::collective
