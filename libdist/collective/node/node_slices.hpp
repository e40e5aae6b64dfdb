// How a message is divided among the ranks of a node. Internal to the reductions of this folder.
#pragma once

#include <algorithm>
#include <cstddef>

#include "calls/reduction.hpp"
#include "collective/node/channel/slot_channel.hpp"

namespace amldist::collective {

inline constexpr int all_ranks = -1;  ///< instead of a root: all ranks get the result
inline constexpr std::size_t cache_line = 64;

/// The slices of one piece, one per rank: as equal as whole cache lines allow.
struct Slices {
  std::size_t count;  ///< elements of the piece
  std::size_t each;   ///< elements of a full slice
  [[nodiscard]] std::size_t begin(std::size_t rank) const noexcept { return std::min(count, rank * each); }
  [[nodiscard]] std::size_t size(std::size_t rank) const noexcept { return begin(rank + 1) - begin(rank); }
};

inline Slices slices_of(std::size_t count, std::size_t ranks, std::size_t unit) noexcept {
  const std::size_t grain = cache_line / unit;
  const std::size_t each = ((count + ranks - 1) / ranks + grain - 1) / grain * grain;
  return {count, each};
}

struct Range {
  std::size_t begin;
  std::size_t end;
};

/// The slice of the whole message that this rank folds, in bytes of the buffers.
inline Range own_slice(const calls::Reduction& what, const SlotChannel& rounds) noexcept {
  const std::size_t unit = size_of(what.type);
  const Slices cut = slices_of(what.count, rounds.size(), unit);
  return {cut.begin(rounds.rank()) * unit, cut.begin(rounds.rank() + 1) * unit};
}

}  // namespace amldist::collective
