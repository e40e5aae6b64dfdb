// All-reduce and reduce through staging buffers, whole: every rank copies all of its data to its staging buffer and
// folds the data of all ranks, piece by piece, one piece ahead. In a reduce, the root only folds, the others only copy.
//
// Waits: 1 a piece. A rank reads the data of all ranks: for two ranks, and for short messages.
#include <algorithm>
#include <cstring>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/node_slices.hpp"

namespace amldist::collective {

Result<NodeCollectives::Agreement> NodeCollectives::allreduce_whole(const calls::Reduction& what, int root) {
  const std::size_t unit = size_of(what.type);
  const bool is_root = root == static_cast<int>(slot_channel_.rank());
  const bool folds = root == all_ranks || is_root;
  const std::size_t piece = (root == all_ranks ? longest_piece() : one_way_piece(what.count * unit)) / unit;
  const Store store = what.send == what.recv ? Store::cached : store_for(what.count * unit);
  const auto part = [&](std::size_t i) { return std::min(piece, what.count - i * piece); };
  bool mixed = false;
  slot_channel_.use_slots(part(0) * unit, (root == all_ranks ? 2 : 1) * what.count * unit);
  auto done = pipeline(
      (what.count + piece - 1) / piece,
      [&](std::size_t i) {
        if (i == 0) std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
        if (!is_root) copy_for_others(slot_channel_.own_slot(), what.send + i * piece * unit, part(i) * unit);
      },
      [&](std::size_t i, std::uint32_t back) -> Result<bool> {
        if (!folds) return true;
        if (auto status = slot_channel_.await_all(back); !status) return status.error();
        if (i == 0) mixed = agreement(back) == Agreement::mixed;
        if (mixed) return false;
        for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
          sources_[r] = r == slot_channel_.rank() ? what.send + i * piece * unit : slot_channel_.slot_of(r, back);
        }
        kernels_.fold(
            {what.recv + i * piece * unit, nullptr, sources_.data(), sources_.size(), part(i), what.divisor, store},
            what.type, what.op);
        return true;
      });
  if (!done) return done.error();
  return mixed ? Agreement::mixed : Agreement::of_private;
}

}  // namespace amldist::collective
