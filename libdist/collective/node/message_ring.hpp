// A byte stream from one process to another of its node, through a ring in memory that both have mapped. One writes,
// one reads, neither blocks. Each end keeps its position privately and publishes a copy. The published position of the
// other end is checked, so a damaged ring is detected and never leads outside its memory.
//
// Positions are multiples of a cache line: every message begins on a new cache line, with a word of its own. That word
// announces the message's first part once all of it is in the ring, so that a reader which polls the word gets it with
// the data, without the line of the writer's position.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "collective/node/relax.hpp"

namespace amldist::collective {

/// An empty ring is zeroed memory, aligned to a cache line.
struct MessageRing {
  static constexpr std::size_t line = 64;
  /// So much that memory which the reader has just read is not written again at once (decision 31).
  static constexpr std::size_t capacity = 128UL << 10;

  alignas(line) std::atomic<std::uint64_t> written;  ///< bytes written since the beginning; published by the writer
  std::atomic<std::uint64_t> key;                    ///< random; 0: the writer is not there yet
  alignas(line) std::atomic<std::uint64_t> taken;    ///< bytes read since the beginning; published by the reader
  alignas(line) std::byte data[capacity];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert((MessageRing::capacity & (MessageRing::capacity - 1)) == 0 && sizeof(MessageRing) % 64 == 0);

/// Common to both ends: the ring, this end's position, and the last known position of the other end.
class RingEnd {
 public:
  /// Bytes that precede the contents of a message.
  static constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  /// Goes on with the next cache line, unless one begins here.
  void end_line() noexcept { at_ = (at_ + MessageRing::line - 1) / MessageRing::line * MessageRing::line; }

 protected:
  explicit RingEnd(MessageRing& ring) : ring_(&ring) {}

  [[nodiscard]] static bool are_valid(std::uint64_t written, std::uint64_t taken) noexcept {
    const std::uint64_t between = written - taken;
    return between <= MessageRing::capacity && between % MessageRing::line == 0;
  }
  /// The word of a message that begins here. What the ring held before, which may be anything, is it by chance only,
  /// once in 2^64.
  [[nodiscard]] std::uint64_t word_of(std::uint32_t signature, bool is_announced) const noexcept {
    return (key_ + at_) ^ (static_cast<std::uint64_t>(is_announced) << 63 | signature);
  }
  [[nodiscard]] std::atomic_ref<std::uint64_t> word_at(std::uint64_t position) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(ring_->data + position % MessageRing::capacity));
  }
  /// Advances by `bytes` and calls `copy` for the one or two pieces of the ring that they occupy.
  template <typename Copy>
  void pass(std::size_t bytes, Copy copy) noexcept {
    const std::size_t offset = at_ % MessageRing::capacity;
    const std::size_t first = std::min(bytes, MessageRing::capacity - offset);
    copy(ring_->data + offset, std::size_t{0}, first);
    copy(ring_->data, first, bytes - first);
    at_ += bytes;
  }

  MessageRing* ring_;
  std::uint64_t at_ = 0;
  std::uint64_t other_ = 0;
  std::uint64_t key_ = 0;
};

class RingWriter : public RingEnd {
 public:
  /// `key`: random, not 0.
  RingWriter(MessageRing& ring, std::uint64_t key) : RingEnd(ring) {
    key_ = key;
    ring.key.store(key, std::memory_order_relaxed);  // seen with the first position or after it
  }

  /// Bytes that may be written before the next publish(). Reads the reader's position only if `wanted` bytes are not
  /// known to fit. nullopt: the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> room(std::size_t wanted) noexcept {
    if (MessageRing::capacity - (at_ - other_) < wanted) {
      const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
      if (!are_valid(at_, taken)) return std::nullopt;
      other_ = taken;
    }
    return MessageRing::capacity - (at_ - other_);
  }
  void put(std::span<const std::byte> bytes) noexcept {
    pass(bytes.size(),
         [&](std::byte* to, std::size_t from, std::size_t count) { std::copy_n(bytes.data() + from, count, to); });
  }
  /// Begins a message. `is_announced`: everything up to the next publish() is what announced() asks for.
  void begin_message(std::uint32_t signature, bool is_announced) noexcept {
    begun_ = at_;
    word_ = word_of(signature, is_announced);
    has_begun_ = true;
    at_ += word_bytes;
  }
  /// Publishes what was written.
  void publish() noexcept {
    end_line();
    if (std::exchange(has_begun_, false)) word_at(begun_).store(word_, std::memory_order_release);
    ring_->written.store(at_, std::memory_order_release);
    prefetch_for_write(ring_->data + at_ % MessageRing::capacity);
  }

 private:
  std::uint64_t begun_ = 0;  ///< where the message begins that was begun since the last publish()
  std::uint64_t word_ = 0;
  bool has_begun_ = false;
};

class RingReader : public RingEnd {
 public:
  explicit RingReader(MessageRing& ring) : RingEnd(ring) {}

  /// Whether a message of this signature begins here whose first part is announced. Then all of that part can be read.
  [[nodiscard]] bool is_announced(std::uint32_t signature) noexcept {
    constexpr int polls = 3;  // the line of the position stays with the writer meanwhile
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    if (key_ == 0) return false;
    const std::uint64_t wanted = word_of(signature, true);
    for (int poll = 0; poll < polls; ++poll) {
      if (word_at(at_).load(std::memory_order_acquire) == wanted) return true;
      relax_briefly();
    }
    return false;
  }
  /// Bytes that can be read before the next release(), whole cache lines; nullopt: the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> available(std::size_t wanted) noexcept {
    if (other_ < at_ + wanted) {
      const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
      // What was announced may have been taken before the position shows it.
      const bool is_behind = other_ <= written && written < at_ && written % MessageRing::line == 0;
      if (!is_behind && !are_valid(written, at_)) return std::nullopt;
      other_ = written;
      if (is_behind) return 0;
    }
    return other_ - at_;
  }
  /// Takes the word with which a message begins. nullopt: it is no such word.
  [[nodiscard]] std::optional<std::uint32_t> take_word() noexcept {
    constexpr std::uint64_t flag = std::uint64_t{1} << 63;
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    const std::uint64_t content = (word_at(at_).load(std::memory_order_relaxed) ^ (key_ + at_)) & ~flag;
    at_ += word_bytes;
    if (content > UINT32_MAX) return std::nullopt;
    return static_cast<std::uint32_t>(content);
  }
  void take(std::span<std::byte> bytes) noexcept {
    pass(bytes.size(), [&](const std::byte* from, std::size_t to, std::size_t count) {
      std::copy_n(from, count, bytes.data() + to);
    });
  }
  /// Gives the space of what was read back to the writer.
  void release() noexcept {
    end_line();
    ring_->taken.store(at_, std::memory_order_release);
  }
};

}  // namespace amldist::collective
