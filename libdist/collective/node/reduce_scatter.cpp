// Reduce-scatter through staging buffers: every rank copies the blocks of the other ranks to its slot and folds its own
// block from all slots, piece by piece.
#include <algorithm>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/node_slices.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::reduce_scatter(const Reduction& what, const Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::uint32_t ranks = slot_channel_.size();
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t piece = slot_channel_.slot_bytes() / ranks / cache_line * cache_line / unit;
  std::size_t longest = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) longest = std::max(longest, blocks.count(r));
  const auto part = [&](std::size_t i, std::uint32_t r) {
    return std::min(piece, blocks.count(r) - std::min(blocks.count(r), i * piece));
  };
  return pipeline(
      std::max<std::size_t>(1, (longest + piece - 1) / piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; r < ranks; ++r) {
          if (r == own) continue;
          copy_whole_lines(slot_channel_.own_slot() + r * piece * unit,
                           what.send + (blocks.offset(r) + i * piece) * unit, part(i, r) * unit);
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (auto came = slot_channel_.await_all(back); !came) return came;
        for (std::uint32_t r = 0; r < ranks; ++r) {
          sources_[r] = r == own ? what.send + (blocks.offset(own) + i * piece) * unit
                                 : slot_channel_.slot_of(r, back) + own * piece * unit;
        }
        if (part(i, own) == 0) return {};
        kernels_.fold(
            {what.recv + i * piece * unit, nullptr, sources_.data(), ranks, part(i, own), what.divisor, Store::cached},
            what.type, what.op);
        return {};
      });
}

}  // namespace amldist::collective
