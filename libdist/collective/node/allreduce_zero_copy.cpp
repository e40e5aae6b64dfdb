// All-reduce on buffers from amldist_alloc(), which all ranks of the node have mapped: zero-copy. Every rank folds one
// slice of all inputs and writes it to all results.
//
// Waits: 2. Every byte is read and written once. If some ranks have private buffers, no rank works directly.
#include <algorithm>
#include <cstring>

#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

/// A rank whose buffers are in its arena announces it and copies nothing. If all ranks do, they work directly on the
/// buffers. If only some do, all start again as with private buffers, after the rounds that the ranks with private ones
/// have published by then.
Result<void> NodeCollectives::allreduce_large(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  using Access = Arenas::Access;
  const bool in_place = what.send == what.recv;
  const auto send = arenas_ != nullptr ? arenas_->offset_of(what.send, bytes, in_place ? Access::written : Access::read)
                                       : std::nullopt;
  const auto recv = !send || in_place ? send : arenas_->offset_of(what.recv, bytes, Access::written);
  if (!recv) return allreduce_packed(what);
  offer({Mode::direct, *send, *recv});
  if (auto status = slot_channel_.begin(); !status) return status;
  const auto [begin, end] = own_slice(what, slot_channel_);
  pack(what, 0, begin);
  pack(what, end, bytes);
  std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
  slot_channel_.publish();
  if (auto status = slot_channel_.await_all(); !status) return status;
  if (agreement(0) == Agreement::direct) return allreduce_direct(what);
  const bool one_round = fetches_ || (folds_whole(bytes) && bytes <= longest_piece());
  if (!one_round) {
    if (auto status = slot_channel_.begin(); !status) return status;
    slot_channel_.publish();
  }
  return allreduce_packed(what);
}

/// Every rank folds one slice of all inputs and writes it to all results, so every byte is read and written once.
/// Segments that lie elsewhere are used in place within the own slice and copied outside it.
Result<void> NodeCollectives::allreduce_direct(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    const Offer theirs = offer_of(r, 0);
    inputs_[r] = arenas_->at(r, theirs.send, bytes);
    results_[r] = arenas_->at(r, theirs.recv, bytes);
    if (inputs_[r] == nullptr || results_[r] == nullptr) return slot_channel_.is_damaged(r);
  }
  const auto [begin, end] = own_slice(what, slot_channel_);
  if (what.segments == nullptr) fold_direct(what, {begin, end - begin, what.recv + begin});
  else
    for_segments(what.segments, begin, end, [&](const calls::BufferSegment& segment) { fold_direct(what, segment); });
  if (auto status = slot_channel_.begin(); !status) return status;
  slot_channel_.publish();
  if (auto status = slot_channel_.await_all(); !status) return status;
  unpack(what, 0, begin);
  unpack(what, end, bytes);
  return {};
}

void NodeCollectives::fold_direct(const calls::Reduction& what, const calls::BufferSegment& segment) {
  const std::size_t unit = size_of(what.type);
  const std::uint32_t ranks = slot_channel_.size();
  const std::uint32_t own = slot_channel_.rank();
  const bool in_place = what.send == what.recv;
  const Store store = in_place ? Store::cached : store_for(what.count * unit);
  for (std::size_t done = 0; done < segment.bytes; done += tuning::zero_copy_step) {
    const std::size_t bytes = std::min(tuning::zero_copy_step, segment.bytes - done);
    const std::size_t at = segment.offset + done;
    std::byte* const to = segment.data + done;
    for (std::uint32_t r = 0; r < ranks; ++r) sources_[r] = r == own && in_place ? to : inputs_[r] + at;
    std::byte* const second = ranks > 1 ? results_[(own + 1) % ranks] + at : nullptr;
    kernels_.fold(
        {to, second, sources_.data(), ranks, bytes / unit, what.divisor, ranks == 2 ? store : Store::cached, store},
        what.type, what.op);
    for (std::uint32_t k = 2; k < ranks; ++k) copy(results_[(own + k) % ranks] + at, to, bytes, store);
  }
}

}  // namespace amldist::collective
