// A stream of bytes from one process to another of its node, through a ring in memory that both have mapped: one
// writes, one takes, neither waits. Each end keeps its own position to itself and only tells it; what the other one
// tells is checked, so that a damaged ring is noticed and never followed out of its memory.
//
// What is told are whole cache lines: a message begins on a line of its own.
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

/// In zeroed memory, aligned to a cache line: an empty ring.
struct MessageRing {
  static constexpr std::size_t line = 64;
  static constexpr std::size_t capacity = 64UL << 10;

  alignas(line) std::atomic<std::uint64_t> written;  ///< bytes since the beginning: told by the writer
  alignas(line) std::atomic<std::uint64_t> taken;    ///< told by the reader
  alignas(line) std::byte data[capacity];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert((MessageRing::capacity & (MessageRing::capacity - 1)) == 0 && sizeof(MessageRing) % 64 == 0);

/// What both ends have in common: where it is, and how far it knows the other to be.
class RingEnd {
 protected:
  explicit RingEnd(MessageRing& ring) : ring_(&ring) {}

  [[nodiscard]] static bool can_be(std::uint64_t written, std::uint64_t taken) noexcept {
    const std::uint64_t between = written - taken;
    return between <= MessageRing::capacity && between % MessageRing::line == 0;
  }
  void end_line() noexcept { at_ = (at_ + MessageRing::line - 1) / MessageRing::line * MessageRing::line; }
  /// Calls `copy` for the one or two pieces of the ring from the own position on.
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

  /// Bytes that may be put before the next tell(), if `wanted` is not known to fit; nullopt: the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> room(std::size_t wanted) noexcept {
    if (MessageRing::capacity - (at_ - other_) < wanted) {
      const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
      if (!can_be(at_, taken)) return std::nullopt;
      other_ = taken;
    }
    return MessageRing::capacity - (at_ - other_);
  }
  void put(std::span<const std::byte> bytes) noexcept {
    pass(bytes.size(),
         [&](std::byte* to, std::size_t from, std::size_t count) { std::copy_n(bytes.data() + from, count, to); });
  }
  /// Shows the reader what was put.
  void tell() noexcept {
    end_line();
    ring_->written.store(at_, std::memory_order_release);
    claim(ring_->data + at_ % MessageRing::capacity);
  }
};

class RingReader : RingEnd {
 public:
  explicit RingReader(MessageRing& ring) : RingEnd(ring) {}

  /// Bytes that may be taken before the next tell(), whole lines; nullopt: the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> there(std::size_t wanted) noexcept {
    if (other_ - at_ < wanted) {
      const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
      if (!can_be(written, at_)) return std::nullopt;
      other_ = written;
    }
    return other_ - at_;
  }
  void take(std::span<std::byte> bytes) noexcept {
    pass(bytes.size(), [&](const std::byte* from, std::size_t to, std::size_t count) {
      std::copy_n(from, count, bytes.data() + to);
    });
  }
  /// Lets the writer have the place of what was taken.
  void tell() noexcept {
    end_line();
    ring_->taken.store(at_, std::memory_order_release);
  }
};

}  // namespace amldist::collective
