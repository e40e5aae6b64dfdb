#include <algorithm>
#include <cstring>

#include "collective/kernels/copy_bytes.hpp"
#include "collective/node/node_pipeline.hpp"
#include "os/cache_share.hpp"

namespace amldist::collective {
namespace {

constexpr int everybody = -1;  // instead of a root: all ranks get the result
constexpr std::size_t cache_line = 64;

/// From this size on, checking for buffers from amldist_alloc() pays off, in bytes.
constexpr std::size_t direct_from = 8192;

/// Bytes per piece where every rank folds all data.
std::size_t whole_piece(const SlotChannel& rounds) noexcept {
  constexpr std::size_t best = 131072;
  return rounds.is_oversubscribed() ? rounds.slot_bytes() : best;
}

/// The slices of one piece, one per rank: as equal as whole cache lines allow.
struct Slices {
  std::size_t count;  ///< elements of the piece
  std::size_t each;   ///< elements of a full slice
  [[nodiscard]] std::size_t begin(std::size_t rank) const noexcept { return std::min(count, rank * each); }
  [[nodiscard]] std::size_t size(std::size_t rank) const noexcept { return begin(rank + 1) - begin(rank); }
};

Slices slices_of(std::size_t count, std::size_t ranks, std::size_t unit) noexcept {
  const std::size_t grain = cache_line / unit;
  const std::size_t each = ((count + ranks - 1) / ranks + grain - 1) / grain * grain;
  return {count, each};
}

struct Range {
  std::size_t begin;
  std::size_t end;
};

/// The slice of the whole message that this rank folds, in bytes of the buffers.
Range own_slice(const Reduction& what, const SlotChannel& rounds) noexcept {
  const std::size_t unit = size_of(what.type);
  const Slices cut = slices_of(what.count, rounds.size(), unit);
  return {cut.begin(rounds.rank()) * unit, cut.begin(rounds.rank() + 1) * unit};
}

}  // namespace

NodeCollectives::NodeCollectives(SlotChannel& rounds, const Reductions& kernels, const Arenas* arenas)
    : slot_channel_(rounds),
      kernels_(kernels),
      arenas_(arenas),
      streaming_from_(cache_share(rounds.size()) / 4 * 3),
      sources_(rounds.size()),
      inputs_(rounds.size()),
      results_(rounds.size()) {}

Store NodeCollectives::store_for(std::size_t bytes) const noexcept {
  return bytes >= streaming_from_ ? Store::streaming : Store::cached;
}

Result<void> NodeCollectives::barrier() {
  if (auto begun = slot_channel_.begin(); !begun) return begun;
  slot_channel_.publish();
  return slot_channel_.await_all();
}

Result<void> NodeCollectives::allreduce(const Reduction& what) {
  return what.count * size_of(what.type) >= direct_from ? allreduce_large(what) : allreduce_packed(what);
}

/// All-reduce of a contiguous buffer; segments that lie elsewhere are copied in and out.
Result<void> NodeCollectives::allreduce_packed(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  pack(what, 0, bytes);
  auto done = reduce_any(what, everybody);
  if (done) unpack(what, 0, bytes);
  return done;
}

void NodeCollectives::pack(const Reduction& what, std::size_t begin, std::size_t end) const {
  for_segments(what.segments, begin, end, [&](const BufferSegment& segment) {
    copy_whole_lines(what.recv + segment.offset, segment.data, segment.bytes);
  });
}

/// Copies whole cache lines too: the data is in the cache of the rank that wrote it. As fast as a plain copy between
/// near processors, a tenth faster between far ones.
void NodeCollectives::unpack(const Reduction& what, std::size_t begin, std::size_t end) const {
  for_segments(what.segments, begin, end, [&](const BufferSegment& segment) {
    copy_whole_lines(segment.data, what.recv + segment.offset, segment.bytes);
  });
}

Result<void> NodeCollectives::reduce(const Reduction& what, std::uint32_t root) {
  return reduce_any(what, static_cast<int>(root));
}

Result<void> NodeCollectives::reduce_any(const Reduction& what, int root) {
  return what.count * size_of(what.type) < direct_from ? reduce_at_once(what, root) : reduce_staged(what, root);
}

/// Up to a size, two ranks fold everything: each reads as much from the other as with slices, and waits once less.
/// Above it slices are a tenth faster, because each rank reads less of its own memory.
bool NodeCollectives::folds_whole(std::size_t bytes) const noexcept {
  constexpr std::size_t small = 8192;
  constexpr std::size_t small_for_two = 131072;
  return bytes <= (slot_channel_.size() <= 2 ? small_for_two : small);
}

Result<void> NodeCollectives::reduce_staged(const Reduction& what, int root) {
  offer({Mode::staged, 0, 0});
  const bool whole = folds_whole(what.count * size_of(what.type));
  auto agreed = whole ? allreduce_whole(what, root) : allreduce_sliced(what, root);
  if (agreed && *agreed == Agreement::mixed)
    agreed = whole ? allreduce_whole(what, root) : allreduce_sliced(what, root);
  return agreed ? Result<void>() : agreed.error();
}

// ---- directly on the buffers (zero-copy) ----
void NodeCollectives::offer(const Offer& own) { offer_ = own; }

NodeCollectives::Offer NodeCollectives::offer_of(std::uint32_t rank, std::uint32_t back) {
  Offer out = {};
  std::memcpy(&out, slot_channel_.line_of(rank, back), sizeof out);
  return out;
}

NodeCollectives::Agreement NodeCollectives::agreement(std::uint32_t back) {
  std::uint32_t direct = 0;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) direct += offer_of(r, back).mode == Mode::direct ? 1 : 0;
  if (direct == 0) return Agreement::staged;
  return direct == slot_channel_.size() ? Agreement::direct : Agreement::mixed;
}

/// A rank whose buffers are in its arena says so and copies nothing. If all ranks do, they work directly on the
/// buffers. If only some do, all start again with staging buffers, after the rounds that the staging ranks have
/// published by then.
Result<void> NodeCollectives::allreduce_large(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const auto send = arenas_ != nullptr ? arenas_->offset_of(what.send, bytes) : std::nullopt;
  const auto recv = send ? arenas_->offset_of(what.recv, bytes) : std::nullopt;
  if (!recv) return allreduce_packed(what);
  offer({Mode::direct, *send, *recv});
  if (auto begun = slot_channel_.begin(); !begun) return begun;
  const auto [begin, end] = own_slice(what, slot_channel_);
  pack(what, 0, begin);
  pack(what, end, bytes);
  std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
  slot_channel_.publish();
  if (auto came = slot_channel_.await_all(); !came) return came;
  if (agreement(0) == Agreement::direct) return allreduce_direct(what);
  const bool one_round = folds_whole(bytes) && bytes <= whole_piece(slot_channel_);
  if (!one_round) {
    if (auto begun = slot_channel_.begin(); !begun) return begun;
    slot_channel_.publish();
  }
  return allreduce_packed(what);
}

/// Every rank folds one slice of all inputs and writes it to all results, so every byte is read and written once.
/// Segments that lie elsewhere are used in place within the own slice and copied outside it.
Result<void> NodeCollectives::allreduce_direct(const Reduction& what) {
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    const Offer theirs = offer_of(r, 0);
    inputs_[r] = arenas_->at(r, theirs.send);
    results_[r] = arenas_->at(r, theirs.recv);
  }
  const std::size_t bytes = what.count * size_of(what.type);
  const auto [begin, end] = own_slice(what, slot_channel_);
  if (what.segments == nullptr) fold_direct(what, {begin, end - begin, what.recv + begin});
  else for_segments(what.segments, begin, end, [&](const BufferSegment& segment) { fold_direct(what, segment); });
  if (auto begun = slot_channel_.begin(); !begun) return begun;
  slot_channel_.publish();
  if (auto came = slot_channel_.await_all(); !came) return came;
  unpack(what, 0, begin);
  unpack(what, end, bytes);
  return {};
}

void NodeCollectives::fold_direct(const Reduction& what, const BufferSegment& segment) {
  constexpr std::size_t most = 64UL << 10;  // stays in the cache until it is copied to the other ranks
  const std::size_t unit = size_of(what.type);
  const std::uint32_t ranks = slot_channel_.size();
  const std::uint32_t own = slot_channel_.rank();
  const bool in_place = what.send == what.recv;
  const Store store = in_place ? Store::cached : store_for(what.count * unit);
  for (std::size_t done = 0; done < segment.bytes; done += most) {
    const std::size_t bytes = std::min(most, segment.bytes - done);
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

// ---- in one round ----
/// Every rank publishes its buffer and folds all of them: in the slot's line itself, beside its number, where it fits.
Result<void> NodeCollectives::reduce_at_once(const Reduction& what, int root) {
  if (auto begun = slot_channel_.begin(); !begun) return begun;
  publish(what);
  const bool folds = root == everybody || static_cast<std::uint32_t>(root) == slot_channel_.rank();
  return folds ? finish_allreduce(what) : Result<void>();
}

bool NodeCollectives::start_allreduce(const Reduction& what) {
  if (what.count * size_of(what.type) >= direct_from || !slot_channel_.try_begin()) return false;
  publish(what);
  return true;
}

void NodeCollectives::publish(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const bool in_line = bytes <= SlotChannel::line_data;
  if (in_line) copy_bytes(slot_channel_.own_line(), what.send, bytes);
  else copy_whole_lines(slot_channel_.own_slot(), what.send, bytes);
  slot_channel_.publish();
  if (in_line) slot_channel_.prefetch_next_line();
}

Result<void> NodeCollectives::finish_allreduce(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  slot_channel_.delay_polling(bytes);
  if (auto came = slot_channel_.await_all(); !came) return came;
  if (what.count == 0) return {};
  const bool in_line = bytes <= SlotChannel::line_data;
  const std::byte* shown = in_line ? slot_channel_.line_of(0) : slot_channel_.slot_of(0);
  const std::size_t to_the_next = in_line ? SlotChannel::between_lines() : slot_channel_.between_slots();
  for (const void*& source : sources_) {
    source = shown;
    shown += to_the_next;
  }
  sources_[slot_channel_.rank()] = what.send;
  kernels_.fold({what.recv, nullptr, sources_.data(), sources_.size(), what.count, what.divisor, Store::cached},
                what.type, what.op);
  return {};
}

// ---- through staging buffers ----

/// Every rank copies all its data to its staging buffer and folds all of them, piece by piece.
Result<NodeCollectives::Agreement> NodeCollectives::allreduce_whole(const Reduction& what, int root) {
  const std::size_t unit = size_of(what.type);
  const std::size_t piece = whole_piece(slot_channel_) / unit;
  const bool folds = root == everybody || static_cast<std::uint32_t>(root) == slot_channel_.rank();
  const Store store = what.send == what.recv ? Store::cached : store_for(what.count * unit);
  const auto part = [&](std::size_t i) { return std::min(piece, what.count - i * piece); };
  bool mixed = false;
  auto done = pipeline(
      (what.count + piece - 1) / piece,
      [&](std::size_t i) {
        if (i == 0) std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
        copy_whole_lines(slot_channel_.own_slot(), what.send + i * piece * unit, part(i) * unit);
      },
      [&](std::size_t i, std::uint32_t back) -> Result<bool> {
        if (!folds) return true;
        if (auto came = slot_channel_.await_all(back); !came) return came.error();
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
  return mixed ? Agreement::mixed : Agreement::staged;
}

/// An all-reduce in slices. Every rank copies a piece to its staging buffer, folds one slice of it, and puts that
/// result into its staging buffer with the next piece. A slot holds a piece and one slice of results.
class NodeCollectives::Sliced {
 public:
  Sliced(NodeCollectives& owner, const Reduction& what, bool receives)
      : owner_(owner),
        slot_channel_(owner.slot_channel_),
        what_(what),
        receives_(receives),
        unit_(size_of(what.type)),
        store_(what.send == what.recv ? Store::cached : owner.store_for(what.count * unit_)) {
    const std::size_t ranks = slot_channel_.size();
    const std::size_t most = (slot_channel_.slot_bytes() - 2 * cache_line) / (ranks + 1) * ranks;
    constexpr std::size_t best_slice = 32768;
    const std::size_t wanted =
        slot_channel_.is_oversubscribed() || ranks == 2 ? most : std::min(most, best_slice * ranks);
    piece_ = wanted / (cache_line * ranks) * (cache_line * ranks) / unit_;
  }

  [[nodiscard]] std::size_t pieces() const noexcept { return (what_.count + piece_ - 1) / piece_; }

  /// Copies all but the own slice, which no other rank reads.
  void stage(std::size_t i) const {
    const Slices cut = slices(i);
    const std::byte* const from = what_.send + i * piece_ * unit_;
    const std::size_t before = cut.begin(slot_channel_.rank()) * unit_;
    const std::size_t after = cut.begin(slot_channel_.rank() + 1) * unit_;
    owner_.copy_whole_lines(slot_channel_.own_slot(), from, before);
    owner_.copy_whole_lines(slot_channel_.own_slot() + after, from + after, cut.count * unit_ - after);
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
    const bool twice = to != staged && store_ == Store::streaming;
    owner_.kernels_.fold({to, twice ? staged : nullptr, owner_.sources_.data(), slot_channel_.size(), cut.size(own),
                          what_.divisor, twice ? store_ : Store::cached},
                         what_.type, what_.op);
    if (to != staged && !twice) owner_.copy_whole_lines(staged, to, cut.size(own) * unit_);
  }

  [[nodiscard]] Result<void> take_results(std::size_t i, std::uint32_t back) const {
    const Slices cut = slices(i);
    for (std::uint32_t k = 1; receives_ && k < slot_channel_.size(); ++k) {
      const std::uint32_t r = (slot_channel_.rank() + k) % slot_channel_.size();
      if (auto came = slot_channel_.await(r, back); !came) return came;
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
  const Reduction& what_;
  const bool receives_;
  const std::size_t unit_;
  const Store store_;
  std::size_t piece_ = 0;  ///< elements
};

Result<NodeCollectives::Agreement> NodeCollectives::allreduce_sliced(const Reduction& what, int root) {
  const Sliced work(*this, what, root == everybody || static_cast<std::uint32_t>(root) == slot_channel_.rank());
  if (auto begun = slot_channel_.begin(); !begun) return begun.error();
  std::memcpy(slot_channel_.own_line(), &offer_, sizeof offer_);
  work.stage(0);
  slot_channel_.publish();
  const std::size_t pieces = work.pieces();
  for (std::size_t i = 0; i < pieces; ++i) {
    if (auto begun = slot_channel_.begin(); !begun) return begun.error();
    if (auto came = slot_channel_.await_all(1); !came) return came.error();
    if (i == 0 && agreement(1) == Agreement::mixed) {
      slot_channel_.publish();
      return Agreement::mixed;
    }
    work.fold(i);
    if (i + 1 < pieces) work.stage(i + 1);
    if (i > 0) {
      if (auto taken = work.take_results(i - 1, 1); !taken) return taken.error();
    }
    slot_channel_.publish();
  }
  if (auto taken = work.take_results(pieces - 1, 0); !taken) return taken.error();
  return Agreement::staged;
}

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
