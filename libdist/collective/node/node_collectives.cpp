// The parts that the collectives of a node share, and the choice of the algorithm (tuning/algorithm_choice.hpp).
#include "collective/node/node_collectives.hpp"

#include <algorithm>
#include <cstring>

#include "base/os/cache_share.hpp"
#include "collective/node/node_pipeline.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/node/single_copy_trial.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

NodeCollectives::NodeCollectives(SlotChannel& rounds, const Reductions& kernels, const Arenas* arenas,
                                 const PeerMemory* peers, std::optional<NodeTuning> given)
    : slot_channel_(rounds),
      kernels_(kernels),
      arenas_(arenas),
      peers_(peers),
      streaming_from_(cache_share(rounds.size()) / 4 * 3),
      sources_(rounds.size()),
      inputs_(rounds.size()),
      results_(rounds.size()),
      is_given_(given.has_value()),
      tuned_(given.value_or(NodeTuning{})),
      offers_(rounds.size()) {
  stage_as(tuned_);
}

Store NodeCollectives::store_for(std::size_t bytes) const noexcept {
  return bytes >= streaming_from_ ? Store::streaming : Store::cached;
}

void NodeCollectives::copy_piece(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t i,
                                 std::size_t piece, Store store) const {
  const std::size_t part = part_of(bytes, i, piece);
  if (part != 0) copy(to + i * piece, from + i * piece, part, store);
}

std::size_t NodeCollectives::use_slots_by_rank(std::size_t longest, std::size_t buffers,
                                               SlotChannel::Flow flow) noexcept {
  const std::size_t readers = std::max<std::size_t>(1, slot_channel_.size() - 1);
  const std::size_t most = std::min(slot_channel_.slot_bytes() / readers, longest_piece()) / cache_line * cache_line;
  const std::size_t whole_lines = (std::min(longest, most) + cache_line - 1) / cache_line * cache_line;
  const std::size_t piece = std::max(whole_lines, cache_line);
  slot_channel_.use_slots(piece * readers, buffers, flow);
  return piece;
}

Result<void> NodeCollectives::allreduce(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  if (bytes < tuning::one_round_below) return allreduce_packed(what);
  if (auto status = tune_staging(bytes); !status) return status;
  return run_faster_variant(tuning::SingleCopy::allreduce, bytes, [&](bool fetches) {
    fetches_ = fetches;
    return allreduce_large(what);
  });
}

Result<void> NodeCollectives::reduce(const calls::Reduction& what, std::uint32_t root) {
  if (auto status = tune_staging(what.count * size_of(what.type)); !status) return status;
  return reduce_any(what, static_cast<int>(root));
}

Result<void> NodeCollectives::reduce_any(const calls::Reduction& what, int root) {
  return what.count * size_of(what.type) < tuning::one_round_below ? reduce_at_once(what, root)
                                                                   : reduce_private(what, root);
}

/// Up to a size, two ranks fold everything: each reads as much from the other as with slices, and waits once less.
/// Above it slices are a tenth faster, because each rank reads less of its own memory.
bool NodeCollectives::folds_whole(std::size_t bytes) const noexcept {
  return tuning::is_whole_faster(bytes, slot_channel_.size(), tuned_.slices);
}

/// The most bytes that a rank reads at a time from one slot where data goes both ways: they stay in a cache until then.
/// Oversubscribed ranks wait as seldom as they can.
std::size_t NodeCollectives::longest_piece() const noexcept {
  return slot_channel_.is_oversubscribed() ? slot_channel_.slot_bytes() : tuning::node_piece;
}

Result<void> NodeCollectives::reduce_private(const calls::Reduction& what, int root) {
  offer({Mode::staged, 0, 0});
  const std::size_t bytes = what.count * size_of(what.type);
  const auto reduce_once = [&] {
    if (root == all_ranks && fetches_) return allreduce_single_copy(what);
    return folds_whole(bytes) || (root != all_ranks && slot_channel_.size() == 2) ? allreduce_whole(what, root)
                                                                                  : allreduce_sliced(what, root);
  };
  auto agreed = reduce_once();
  if (agreed && *agreed == Agreement::mixed) agreed = reduce_once();
  return agreed ? Result<void>() : agreed.error();
}

/// All-reduce of a contiguous buffer; segments that lie elsewhere are copied in and out.
Result<void> NodeCollectives::allreduce_packed(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  pack(what, 0, bytes);
  auto done = reduce_any(what, all_ranks);
  if (done) unpack(what, 0, bytes);
  return done;
}

void NodeCollectives::pack(const calls::Reduction& what, std::size_t begin, std::size_t end) const {
  for_segments(what.segments, begin, end, [&](const calls::BufferSegment& segment) {
    copy_for_others(what.recv + segment.offset, segment.data, segment.bytes);
  });
}

/// Copies whole cache lines too: the data is in the cache of the rank that wrote it. As fast as a plain copy between
/// near processors, a tenth faster between far ones.
void NodeCollectives::unpack(const calls::Reduction& what, std::size_t begin, std::size_t end) const {
  for_segments(what.segments, begin, end, [&](const calls::BufferSegment& segment) {
    copy_for_others(segment.data, what.recv + segment.offset, segment.bytes);
  });
}

void NodeCollectives::offer(const Offer& own) { offer_ = own; }

NodeCollectives::Offer NodeCollectives::offer_of(std::uint32_t rank, std::uint32_t back) {
  Offer out = {};
  std::memcpy(&out, slot_channel_.line_of(rank, back), sizeof out);
  return out;
}

NodeCollectives::Agreement NodeCollectives::agreement(std::uint32_t back) {
  std::uint32_t direct = 0;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) direct += offer_of(r, back).mode == Mode::direct ? 1 : 0;
  if (direct == 0) return Agreement::of_private;
  return direct == slot_channel_.size() ? Agreement::direct : Agreement::mixed;
}

}  // namespace amldist::collective
