// Memory through which two ranks of a node pass the data of long messages, in blocks. A block belongs to one of the
// two. Its owner writes parts of messages into it, and it becomes the reader's when the writer goes on to another.
//
// So a rank writes to memory that it was the last to read, and that its processor has in its cache. On a Xeon, memory
// that the other rank has read takes twice as long to write: the processor must get each line back from there (decision
// 45). A rank that has many more blocks than the other, because messages go one way, gives some back. Those that it has
// written and the other one has not read count among them: otherwise messages that nobody receives would take the
// blocks that those in the other direction need.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collective/kernels/shared_copy.hpp"
#include "collective/node/channel/message_way.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// The blocks of a pair of ranks, in memory of both, zeroed at first and aligned to a cache line.
struct MessageBlocks {
  static constexpr std::size_t block = 32UL << 10;  ///< bytes of each
  static constexpr std::size_t most = 16;           ///< blocks of a pair
  /// Blocks of each pair of this many ranks: many pairs get less memory.
  [[nodiscard]] static constexpr std::size_t count_of(std::size_t ranks) noexcept {
    return ranks <= 8 ? most : ranks <= 16 ? 8 : 6;
  }
  /// A rank that holds more than this many of `count` gives some back. When both give back at the same moment, each may
  /// be left with one less than the rest; two are needed to go on: one to write to, one that the other rank reads.
  [[nodiscard]] static constexpr std::size_t most_held(std::size_t count) noexcept { return count - count * 3 / 8; }
  /// Bytes of the same, with what precedes them.
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t ranks) noexcept {
    return sizeof(MessageBlocks) + count_of(ranks) * block;
  }

  /// What a rank tells the other one.
  struct Told {
    alignas(64) std::atomic<std::uint64_t> given_back;   ///< blocks so far
    std::array<std::atomic<std::uint8_t>, most> blocks;  ///< the last of these: the i-th at i modulo `most`
    alignas(64) std::atomic<std::uint64_t> kept;         ///< blocks that it has read and has kept, so far
  };
  std::array<Told, 2> told;  ///< by the rank that comes first, and by the other one

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// The blocks as one of the two ranks has them. For one thread at a time.
class BlockOwner {
 public:
  /// `comes_first`: of the two ranks. At first, each has half of the blocks.
  BlockOwner(MessageBlocks& blocks, std::size_t count, bool comes_first) noexcept
      : data_(blocks.data()),
        count_(count),
        tells_(&blocks.told[comes_first ? 0 : 1]),
        told_(&blocks.told[comes_first ? 1 : 0]) {
    for (std::size_t i = 0; i < count / 2; ++i) keep(comes_first ? i : count / 2 + i);
  }

  // ---- writing ----
  /// Whether a part of this many bytes, `MessageBlocks::block` at most, can be written. nullopt: what the other rank
  /// has published is damaged.
  [[nodiscard]] std::optional<bool> fits(std::size_t bytes) noexcept {
    if (bytes <= left_ || free_ != 0) return true;
    if (!take_returned()) return std::nullopt;
    return free_ != 0;
  }
  /// Whether all of a message of this many bytes surely fits, if nothing else is written before. nullopt: as fits().
  [[nodiscard]] std::optional<bool> fits_whole(std::size_t bytes) noexcept {
    const std::size_t needed = bytes / MessageBlocks::block + 2;  // parts do not fill every block
    if (free_ >= needed || bytes <= left_) return true;
    if (!take_returned()) return std::nullopt;
    return free_ >= needed;
  }
  /// Writes a part that fits(). Returns its place, which the reader has to know. `way`: streamed or copied.
  std::uint64_t write(std::span<const std::byte> part, MessageWay way) noexcept {
    if (part.size() > left_) go_on();
    const std::uint64_t place = (writing_ + 1) * MessageBlocks::block - left_;
    if (way == MessageWay::streamed) {
      copy_by_streaming(data_ + place, part.data(), part.size());
    } else {
      prefetch_for_copy(data_ + place, part.size());
      copy_.copy(data_ + place, part.data(), part.size());
    }
    constexpr std::size_t line = 64;
    left_ -= std::min(left_, (part.size() + line - 1) / line * line);
    return place;
  }

  // ---- reading ----
  /// Reads a part that the other rank has written. False: no such part can be there.
  [[nodiscard]] bool read(std::uint64_t place, std::span<std::byte> part) noexcept {
    const std::uint64_t block = place / MessageBlocks::block;
    if (block >= count_ || place % MessageBlocks::block + part.size() > MessageBlocks::block || is_own(block))
      return false;
    if (block != reading_ && !finish_reading()) return false;
    reading_ = block;
    copy_.copy(part.data(), data_ + place, part.size());
    return true;
  }

 private:
  static constexpr std::size_t none = MessageBlocks::most;

  [[nodiscard]] bool is_own(std::uint64_t block) const noexcept { return (own_ >> block & 1) != 0; }
  /// Blocks that this rank has or has written, and that the other one has not kept.
  [[nodiscard]] std::uint64_t held() const noexcept { return free_ + (writing_ == none ? 0 : 1) + left_to_other_; }
  /// One more free block of this rank, the last to be written.
  void keep(std::uint64_t block) noexcept {
    own_ |= std::uint64_t{1} << block;
    order_[(first_ + free_++) % MessageBlocks::most] = static_cast<std::uint8_t>(block);
  }
  /// The free block that has waited longest.
  [[nodiscard]] std::uint64_t take() noexcept {
    const std::uint64_t block = order_[first_];
    first_ = (first_ + 1) % MessageBlocks::most;
    --free_;
    return block;
  }
  /// Leaves the block that was written to the reader, for the next one.
  void go_on() noexcept {
    if (writing_ != none) {
      own_ &= ~(std::uint64_t{1} << writing_);
      ++left_to_other_;
    }
    writing_ = take();
    left_ = MessageBlocks::block;
  }
  /// The block that was read is this rank's now. It gives back what it has too many, so that the other rank can go on
  /// writing while this one reads. False: as fits().
  [[nodiscard]] bool finish_reading() noexcept {
    if (reading_ == none) return true;
    if (!take_returned() || is_own(reading_)) return false;
    keep(reading_);
    tells_->kept.store(++kept_, std::memory_order_release);
    const std::size_t most = MessageBlocks::most_held(count_);
    if (held() > most && !note_kept()) return false;
    while (held() > most && free_ != 0) give_back();
    return true;
  }
  /// Looks how many blocks the other rank has kept. False: it cannot have.
  [[nodiscard]] bool note_kept() noexcept {
    const std::uint64_t kept = told_->kept.load(std::memory_order_relaxed) - known_kept_;
    if (kept > left_to_other_) return false;
    known_kept_ += kept;
    left_to_other_ -= kept;
    return true;
  }
  void give_back() noexcept {
    const std::uint64_t block = take();
    own_ &= ~(std::uint64_t{1} << block);
    tells_->blocks[gave_ % MessageBlocks::most].store(static_cast<std::uint8_t>(block), std::memory_order_relaxed);
    tells_->given_back.store(++gave_, std::memory_order_release);
  }
  /// Takes what the other rank has given back. False: it cannot have.
  [[nodiscard]] bool take_returned() noexcept {
    const std::uint64_t count = told_->given_back.load(std::memory_order_acquire);
    if (count - got_ > count_) return false;
    for (; got_ != count; ++got_) {
      const std::uint64_t block = told_->blocks[got_ % MessageBlocks::most].load(std::memory_order_relaxed);
      if (block >= count_ || is_own(block)) return false;
      keep(block);
    }
    return true;
  }

  std::byte* data_;
  std::size_t count_;
  MessageBlocks::Told* tells_;  ///< by this rank
  MessageBlocks::Told* told_;   ///< by the other one
  std::uint64_t kept_ = 0;
  std::uint64_t known_kept_ = 0;     ///< by the other rank
  std::uint64_t left_to_other_ = 0;  ///< blocks that the other rank is not known to have kept
  std::uint64_t gave_ = 0;
  std::uint64_t got_ = 0;
  std::uint64_t own_ = 0;                                     ///< a bit for each block of this rank
  std::array<std::uint8_t, MessageBlocks::most> order_ = {};  ///< the free ones, in the order in which they are used
  std::size_t first_ = 0;                                     ///< of these
  std::size_t free_ = 0;                                      ///< how many there are
  std::uint64_t writing_ = none;                              ///< this rank's, too
  std::size_t left_ = 0;                                      ///< bytes of it
  std::uint64_t reading_ = none;                              ///< the other rank's, until it goes on to another one
  SharedCopy copy_;
};

}  // namespace amldist::collective
