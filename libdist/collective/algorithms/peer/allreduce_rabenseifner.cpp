// All-reduce: Rabenseifner's algorithm, a reduce-scatter by recursive halving and an all-gather by recursive doubling.
//
// Partners at half the distance in each step divide what they have left to reduce, until every rank has one finished
// slice; then they exchange what they have, in reverse order. Ranks: a power of two. Steps: 2 log2 n; a rank sends 2 (n
// - 1) / n of the data. Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, LNCS
// 3036.
#include <algorithm>
#include <array>

#include "collective/algorithms/peer/peer_collectives.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::allreduce_rabenseifner(const calls::Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t own = group_.own;
  struct Range {
    std::size_t begin, end;
    [[nodiscard]] std::size_t count() const { return end - begin; }
  };
  std::array<Range, 64> given = {};  // sent in each step
  Range kept = {0, what.count};
  const std::byte* mine = what.send;
  std::size_t step = 0;
  for (std::size_t distance = group_.size() / 2; distance != 0; distance /= 2, ++step) {
    const std::size_t partner = own ^ distance;
    const std::size_t middle = kept.begin + (kept.count() + 1) / 2;
    given[step] = (own & distance) != 0 ? Range{kept.begin, middle} : Range{middle, kept.end};
    kept = (own & distance) != 0 ? Range{middle, kept.end} : Range{kept.begin, middle};
    auto done =
        swap_and_combine(partner, mine + given[step].begin * unit, given[step].count(), partner,
                         mine + kept.begin * unit, what.recv + kept.begin * unit, kept.count(), what, partner < own);
    if (!done) return done;
    mine = what.recv;
  }
  for (std::size_t distance = 1; distance < group_.size(); distance *= 2) {
    const std::size_t partner = own ^ distance;
    const Range& got = given[--step];
    auto done = swap(partner, what.recv + kept.begin * unit, kept.count() * unit, partner, what.recv + got.begin * unit,
                     got.count() * unit);
    if (!done) return done;
    kept = {std::min(kept.begin, got.begin), std::max(kept.end, got.end)};
  }
  return {};
}

}  // namespace amldist::collective
