// Reduce-scatter through staging buffers: every rank copies the blocks of the other ranks to its slot and folds its own
// block from all slots, piece by piece.
#include <algorithm>
#include <cstring>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

/// In a single copy: each rank fetches its block from the buffers of all ranks, step by step. Ranks may have different
/// offsets, so each shows its own.
Result<void> NodeCollectives::reduce_scatter_fetched(const calls::Reduction& what, const calls::Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t step = tuning::single_copy_step(slot_channel_.size());
  const std::size_t begin = blocks.offset(own) * unit;
  const std::size_t block = blocks.count(own) * unit;
  if (auto status = show(what.send, nullptr, &blocks); !status) return status;
  if (auto status = slot_channel_.await_all(); !status) return status;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    std::uint64_t offset = 0;
    std::memcpy(&offset, slot_channel_.slot_of(r) + own * sizeof offset, sizeof offset);
    offers_[r] = offer_of(r, 0);
    offers_[r].send += offset * unit;
  }
  for (std::size_t done = 0; done < block; done += step) {
    if (auto status = fold_step(what, what.recv + done, begin + done, done, std::min(step, block - done)); !status)
      return status;
  }
  return finish_reading();
}

Result<void> NodeCollectives::reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::size_t longest = longest_of(blocks, slot_channel_.size());
  const std::size_t all = longest * slot_channel_.size() * unit;
  if (auto status = tune_staging(all); !status) return status;
  return run_faster_variant(tuning::SingleCopy::reduce_scatter, all, [&](bool fetches) {
    return fetches ? reduce_scatter_fetched(what, blocks) : reduce_scatter_staged(what, blocks);
  });
}

Result<void> NodeCollectives::reduce_scatter_staged(const calls::Reduction& what, const calls::Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::size_t longest = longest_of(blocks, slot_channel_.size());
  const std::uint32_t ranks = slot_channel_.size();
  const std::uint32_t own = slot_channel_.rank();
  const std::size_t buffers = longest * unit * (ranks + 1);
  const std::size_t piece = use_slots_by_rank(blocks.are_equal() ? longest * unit : SIZE_MAX, buffers) / unit;
  const auto part = [&](std::size_t i, std::uint32_t r) {
    return std::min(piece, blocks.count(r) - std::min(blocks.count(r), i * piece));
  };
  return pipeline(
      std::max<std::size_t>(1, (longest + piece - 1) / piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; r < ranks; ++r) {
          if (r == own) continue;
          copy_for_others(slot_channel_.own_slot() + part_for(r, own) * piece * unit,
                          what.send + (blocks.offset(r) + i * piece) * unit, part(i, r) * unit);
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        if (auto status = slot_channel_.await_all(back); !status) return status;
        for (std::uint32_t r = 0; r < ranks; ++r) {
          sources_[r] = r == own ? what.send + (blocks.offset(own) + i * piece) * unit
                                 : slot_channel_.slot_of(r, back) + part_for(own, r) * piece * unit;
        }
        if (part(i, own) == 0) return {};
        kernels_.fold(
            {what.recv + i * piece * unit, nullptr, sources_.data(), ranks, part(i, own), what.divisor, Store::cached},
            what.type, what.op);
        return {};
      });
}

}  // namespace amldist::collective
