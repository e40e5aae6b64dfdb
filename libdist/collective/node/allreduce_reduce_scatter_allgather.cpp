// All-reduce and reduce through staging buffers, in slices: a reduce-scatter followed by an all-gather, as in
// Rabenseifner's algorithm, piece by piece.
//
// Every rank copies a piece to its staging buffer, folds one slice of it, and puts that result into its staging buffer
// with the next piece. A slot holds a piece and one slice of results. Waits: 1 a piece. A rank reads the data twice.
// Sources: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004; R. Graham, G. Shipman, "MPI
// Support for Multi-core Architectures: Optimized Shared Memory Collectives", EuroPVM/MPI 2008.
#include <algorithm>
#include <cstring>

#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

class NodeCollectives::Sliced {
 public:
  Sliced(NodeCollectives& owner, const calls::Reduction& what, bool receives)
      : owner_(owner),
        slot_channel_(owner.slot_channel_),
        what_(what),
        receives_(receives),
        unit_(size_of(what.type)),
        store_(what.send == what.recv ? Store::cached : owner.store_for(what.count * unit_)) {
    const std::size_t ranks = slot_channel_.size();
    const std::size_t most = (slot_channel_.slot_bytes() - 2 * cache_line) / (ranks + 1) * ranks;
    const std::size_t wanted =
        slot_channel_.is_oversubscribed() || ranks == 2 ? most : std::min(most, tuning::node_slice * ranks);
    const std::size_t grain = cache_line * ranks;
    const std::size_t needed = (std::min(what.count * unit_, wanted) + grain - 1) / grain * grain;
    piece_ = std::min(needed, wanted / grain * grain) / unit_;
    slot_channel_.use_slots((piece_ + piece_ / ranks) * unit_, 2 * what.count * unit_);
  }

  [[nodiscard]] std::size_t pieces() const noexcept { return (what_.count + piece_ - 1) / piece_; }

  /// Copies all but the own slice, which no other rank reads.
  void stage(std::size_t i) const {
    const Slices cut = slices(i);
    const std::byte* const from = what_.send + i * piece_ * unit_;
    const std::size_t before = cut.begin(slot_channel_.rank()) * unit_;
    const std::size_t after = cut.begin(slot_channel_.rank() + 1) * unit_;
    owner_.copy_for_others(slot_channel_.own_slot(), from, before);
    owner_.copy_for_others(slot_channel_.own_slot() + after, from + after, cut.count * unit_ - after);
  }

  void fold(std::size_t i) const {
    const Slices cut = slices(i);
    const std::uint32_t own = slot_channel_.rank();
    const std::size_t at = cut.begin(own) * unit_;
    if (cut.size(own) == 0) return;
    for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
      owner_.sources_[r] = r == own ? what_.send + i * piece_ * unit_ + at : slot_channel_.slot_of(r, 1) + at;
    }
    std::byte* const staged = slot_channel_.own_slot() + piece_ * unit_;
    std::byte* const to = receives_ ? what_.recv + i * piece_ * unit_ + at : staged;
    // A streamed result is not in the cache, so it is stored twice instead of copied.
    const bool streams = owner_.tuned_.for_others == Store::streaming && can_stream_second(what_.type, what_.op);
    const bool twice = to != staged && (store_ == Store::streaming || streams);
    owner_.kernels_.fold({to, twice ? staged : nullptr, owner_.sources_.data(), slot_channel_.size(), cut.size(own),
                          what_.divisor, twice ? store_ : Store::cached, streams ? Store::streaming : Store::cached},
                         what_.type, what_.op);
    if (to != staged && !twice) owner_.copy_for_others(staged, to, cut.size(own) * unit_);
  }

  [[nodiscard]] Result<void> take_results(std::size_t i, std::uint32_t back) const {
    const Slices cut = slices(i);
    for (std::uint32_t k = 1; receives_ && k < slot_channel_.size(); ++k) {
      const std::uint32_t r = (slot_channel_.rank() + k) % slot_channel_.size();
      if (auto status = slot_channel_.await(r, back); !status) return status;
      owner_.copy(what_.recv + (i * piece_ + cut.begin(r)) * unit_, slot_channel_.slot_of(r, back) + piece_ * unit_,
                  cut.size(r) * unit_, store_);
    }
    return {};
  }

 private:
  [[nodiscard]] Slices slices(std::size_t i) const noexcept {
    return slices_of(std::min(piece_, what_.count - i * piece_), slot_channel_.size(), unit_);
  }

  NodeCollectives& owner_;
  SlotChannel& slot_channel_;
  const calls::Reduction& what_;
  const bool receives_;
  const std::size_t unit_;
  const Store store_;
  std::size_t piece_ = 0;  ///< elements
};

Result<NodeCollectives::Agreement> NodeCollectives::allreduce_sliced(const calls::Reduction& what, int root) {
  const Sliced work(*this, what, root == all_ranks || static_cast<std::uint32_t>(root) == slot_channel_.rank());
  if (auto status = slot_channel_.begin(); !status) return status.error();
  std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
  work.stage(0);
  slot_channel_.publish();
  const std::size_t pieces = work.pieces();
  for (std::size_t i = 0; i < pieces; ++i) {
    if (auto status = slot_channel_.begin(); !status) return status.error();
    if (auto status = slot_channel_.await_all(1); !status) return status.error();
    if (i == 0 && agreement(1) == Agreement::mixed) {
      slot_channel_.publish();
      return Agreement::mixed;
    }
    work.fold(i);
    if (i + 1 < pieces) work.stage(i + 1);
    if (i > 0) {
      if (auto status = work.take_results(i - 1, 1); !status) return status.error();
    }
    slot_channel_.publish();
  }
  if (auto status = work.take_results(pieces - 1, 0); !status) return status.error();
  return Agreement::of_private;
}

}  // namespace amldist::collective
