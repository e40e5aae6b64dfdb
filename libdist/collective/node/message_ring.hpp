// A byte stream from one process to another of its node, through a ring in memory that both have mapped. One writes,
// one reads, neither blocks. Each end keeps its position privately and publishes a copy. The published position of the
// other end is checked, so a damaged ring is detected and never leads outside its memory.
//
// Positions are multiples of a cache line: every message begins on a new cache line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "collective/node/relax.hpp"

namespace amldist::collective {

/// An empty ring is zeroed memory, aligned to a cache line.
struct MessageRing {
  static constexpr std::size_t line = 64;
  static constexpr std::size_t capacity = 64UL << 10;

  alignas(line) std::atomic<std::uint64_t> written;  ///< bytes written since the beginning; published by the writer
  alignas(line) std::atomic<std::uint64_t> taken;    ///< bytes read since the beginning; published by the reader
  alignas(line) std::byte data[capacity];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert((MessageRing::capacity & (MessageRing::capacity - 1)) == 0 && sizeof(MessageRing) % 64 == 0);

/// Common to both ends: the ring, this end's position, and the last known position of the other end.
class RingEnd {
 protected:
  explicit RingEnd(MessageRing& ring) : ring_(&ring) {}

  [[nodiscard]] static bool are_valid(std::uint64_t written, std::uint64_t taken) noexcept {
    const std::uint64_t between = written - taken;
    return between <= MessageRing::capacity && between % MessageRing::line == 0;
  }
  void end_line() noexcept { at_ = (at_ + MessageRing::line - 1) / MessageRing::line * MessageRing::line; }
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
};

class RingWriter : RingEnd {
 public:
  explicit RingWriter(MessageRing& ring) : RingEnd(ring) {}

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
  /// Publishes what was written.
  void publish() noexcept {
    end_line();
    ring_->written.store(at_, std::memory_order_release);
    prefetch_for_write(ring_->data + at_ % MessageRing::capacity);
  }
};

class RingReader : RingEnd {
 public:
  explicit RingReader(MessageRing& ring) : RingEnd(ring) {}

  /// Bytes that can be read before the next release(), whole cache lines; nullopt: the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> available(std::size_t wanted) noexcept {
    if (other_ - at_ < wanted) {
      const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
      if (!are_valid(written, at_)) return std::nullopt;
      other_ = written;
    }
    return other_ - at_;
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
