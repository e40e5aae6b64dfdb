// A byte stream from one process to another of its node, through a ring in memory that both have mapped. One writes,
// one reads, neither blocks. Each end keeps its position privately and publishes a copy. The published position of the
// other end is checked, so that a damaged ring is detected and never leads outside its memory.
//
// Positions are multiples of a cache line: every message begins on a new cache line, with a word of its own. That word
// announces the message's first part once all of it is in the ring, so that a reader which polls the word gets it with
// the data, without reading the line of the writer's position.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "collective/kernels/string_copy.hpp"
#include "collective/node/channel/message_way.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// An empty ring is zeroed memory, aligned to a cache line.
struct MessageRing {
  static constexpr std::size_t line = 64;
  /// So large that memory which the reader has just read is not written again at once (decision 31).
  static constexpr std::size_t capacity = 128UL << 10;

  alignas(line) std::atomic<std::uint64_t> written;  ///< bytes written since the beginning; published by the writer
  std::atomic<std::uint64_t> key;                    ///< random; 0 until the writer is there
  std::atomic<std::uint64_t> has_given_up;           ///< 1: the memory that the writer offered may have changed
  alignas(line) std::atomic<std::uint64_t> taken;    ///< bytes read since the beginning; published by the reader
  std::atomic<std::uint64_t> fetched;                ///< messages that the reader has fetched from the writer's memory
  std::atomic<std::uint64_t> preferred;              ///< set by the reader: the classes of messages that it would fetch
  alignas(line) std::byte data[capacity];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert((MessageRing::capacity & (MessageRing::capacity - 1)) == 0 && sizeof(MessageRing) % 64 == 0);

/// The beginning of a message.
struct MessageStart {
  std::uint32_t signature = 0;
  bool is_offered = false;  ///< its address follows its length, and the reader fetches it; else its data follows

  /// The word of a message, before the position is added.
  [[nodiscard]] std::uint64_t word() const noexcept {
    return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(is_offered) << 62 | signature;
  }
  /// nullopt if it is no such word.
  [[nodiscard]] static std::optional<MessageStart> from(std::uint64_t word) noexcept {
    const MessageStart out = {static_cast<std::uint32_t>(word), (word >> 62 & 1) != 0};
    return out.word() == word ? std::optional(out) : std::nullopt;
  }
};

/// Common to both ends: the ring, this end's position, and the last known position of the other end.
class RingEnd {
 public:
  /// Bytes that precede the contents of a message.
  static constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  /// Advances to the next cache line, unless one begins here.
  void end_line() noexcept { at_ = (at_ + MessageRing::line - 1) / MessageRing::line * MessageRing::line; }

 protected:
  explicit RingEnd(MessageRing& ring) : ring_(&ring) {}

  /// Whether all of the ring has been used. Until then its memory comes page by page from the kernel, and a message
  /// takes longer than it ever will again: that must not decide how messages travel.
  [[nodiscard]] bool is_touched() const noexcept { return at_ > 2 * MessageRing::capacity; }
  [[nodiscard]] static bool are_valid(std::uint64_t written, std::uint64_t taken) noexcept {
    const std::uint64_t between = written - taken;
    return between <= MessageRing::capacity && between % MessageRing::line == 0;
  }
  /// The word of a message that begins here. What the ring held before may be anything; it equals the word by chance
  /// only once in 2^64.
  [[nodiscard]] std::uint64_t word_of(const MessageStart& start) const noexcept { return (key_ + at_) ^ start.word(); }
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
  bool by_string_ = has_fast_string_copy();
};

class RingWriter : public RingEnd {
 public:
  /// `key`: random, not 0.
  RingWriter(MessageRing& ring, std::uint64_t key) : RingEnd(ring) {
    key_ = key;
    ring.key.store(key, std::memory_order_relaxed);  // seen with the first position or after it
  }

  /// Bytes that may be written before the next publish(). Reads the reader's position only if `wanted` bytes are not
  /// known to fit. nullopt if the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> room(std::size_t wanted) noexcept {
    if (MessageRing::capacity - (at_ - other_) < wanted) {
      const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
      if (!are_valid(at_, taken)) return std::nullopt;
      other_ = taken;
    }
    return MessageRing::capacity - (at_ - other_);
  }
  void put(std::span<const std::byte> bytes) noexcept {
    pass(bytes.size(), [&](std::byte* to, std::size_t from, std::size_t count) {
      copy_shared(to, bytes.data() + from, count, by_string_);
    });
  }
  void begin_message(const MessageStart& start) noexcept {
    begun_ = at_;
    word_ = word_of(start);
    has_begun_ = true;
    at_ += word_bytes;
    offered_ += start.is_offered ? 1 : 0;
  }
  /// Whether the next message of this many bytes is offered instead of written.
  [[nodiscard]] bool offers(std::size_t bytes) const noexcept {
    return is_touched() && ways_.fetches(bytes, ring_->preferred.load(std::memory_order_relaxed));
  }
  /// A message that could have been offered has begun.
  void count(std::size_t bytes) noexcept {
    if (is_touched()) ways_.count(bytes);
  }
  /// Whether the reader has fetched the last message that was offered. nullopt if the ring is damaged.
  [[nodiscard]] std::optional<bool> is_fetched() const noexcept {
    const std::uint64_t fetched = ring_->fetched.load(std::memory_order_acquire);
    if (fetched == offered_) return true;
    if (fetched + 1 != offered_) return std::nullopt;
    return false;
  }
  void give_up() noexcept { ring_->has_given_up.store(1, std::memory_order_release); }
  /// Publishes what was written.
  void publish() noexcept {
    end_line();
    const bool is_short = has_begun_ && at_ - begun_ <= short_bytes;
    if (std::exchange(has_begun_, false)) word_at(begun_).store(word_, std::memory_order_release);
    ring_->written.store(at_, std::memory_order_release);
    if (!is_short) return;  // a long one takes so long that it would only be in the way
    prefetch_for_write(ring_->data + at_ % MessageRing::capacity);
  }

 private:
  static constexpr std::size_t short_bytes = 2048;

  std::uint64_t begun_ = 0;  ///< where the message begins that was started since the last publish()
  std::uint64_t word_ = 0;
  bool has_begun_ = false;
  std::uint64_t offered_ = 0;
  MessageWayChoice ways_;
};

class RingReader : public RingEnd {
 public:
  explicit RingReader(MessageRing& ring) : RingEnd(ring) {}

  /// Whether an announced message of this signature begins here. Then its header can be read, and the part that it
  /// announces must be reported to known().
  [[nodiscard]] bool is_announced(std::uint32_t signature) noexcept {
    constexpr int polls = 3;  // the line of the position stays with the writer meanwhile
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    if (key_ == 0) return false;
    const std::uint64_t written = word_of({signature});
    const std::uint64_t offered = word_of({signature, true});
    for (int poll = 0; poll < polls; ++poll) {
      const std::uint64_t word = word_at(at_).load(std::memory_order_acquire);
      if (word == written || word == offered) return true;
      relax_briefly();
    }
    return false;
  }
  /// The length of the message that begins here; nullopt unless it has this signature, all of its first part is in the
  /// ring, and it is not offered.
  [[nodiscard]] std::optional<std::uint64_t> announced_length(std::uint32_t signature) noexcept {
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    if (key_ == 0) return std::nullopt;
    if (word_at(at_).load(std::memory_order_acquire) != word_of({signature})) return std::nullopt;
    return word_at(at_ + word_bytes).load(std::memory_order_relaxed);
  }
  /// Takes the header of the message that announced_length() has found. `part`: the header and what comes with it.
  void take_header(std::size_t header_bytes, std::size_t part) noexcept {
    known(at_, part);
    at_ += header_bytes;
  }
  /// This many bytes from `position` on can be read, whether the writer's position shows it or not.
  void known(std::uint64_t position, std::size_t bytes) noexcept {
    known_ = std::max(known_, (position + bytes + MessageRing::line - 1) / MessageRing::line * MessageRing::line);
  }
  [[nodiscard]] std::uint64_t position() const noexcept { return at_; }
  /// Bytes that can be read before the next release(); nullopt if the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> available(std::size_t wanted) noexcept {
    if (known_ < at_ + wanted) {
      const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
      const bool is_ahead = written > at_;
      if (written < other_ || written % MessageRing::line != 0) return std::nullopt;
      if (is_ahead && written - at_ > MessageRing::capacity) return std::nullopt;
      other_ = written;
      known_ = std::max(known_, written);
    }
    return known_ - at_;
  }
  /// Takes the word with which a message begins. nullopt if it is no such word.
  [[nodiscard]] std::optional<MessageStart> take_word() noexcept {
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    const auto start = MessageStart::from(word_at(at_).load(std::memory_order_relaxed) ^ (key_ + at_));
    at_ += word_bytes;
    return start;
  }
  void take(std::span<std::byte> bytes) noexcept {
    pass(bytes.size(), [&](const std::byte* from, std::size_t to, std::size_t count) {
      copy_shared(bytes.data() + to, from, count, by_string_);
    });
  }
  /// All of the message that was offered has been fetched.
  void finish_fetching() noexcept { ring_->fetched.store(++fetched_, std::memory_order_release); }
  /// Whether the writer gave up. If not, what was fetched before is what it offered.
  [[nodiscard]] bool has_given_up() const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return ring_->has_given_up.load(std::memory_order_relaxed) != 0;
  }
  /// Whether note() wants to know how long this message takes.
  [[nodiscard]] bool is_timed(std::size_t bytes, bool is_fetched) noexcept {
    return is_touched() && ways_.wants(bytes, is_fetched);
  }
  /// A message has taken this long, from its header to its end.
  void note(std::size_t bytes, bool was_fetched, std::chrono::nanoseconds took) noexcept {
    const auto picoseconds = static_cast<std::uint64_t>(took.count()) * 1000;
    const std::uint64_t now = ways_.note(bytes, was_fetched, picoseconds / bytes);
    if (std::exchange(preferred_, now) != now) ring_->preferred.store(now, std::memory_order_relaxed);
  }
  /// Returns the space of what was read to the writer.
  void release() noexcept {
    end_line();
    ring_->taken.store(at_, std::memory_order_release);
  }

 private:
  std::uint64_t known_ = 0;  ///< the ring can be read up to here
  std::uint64_t fetched_ = 0;
  std::uint64_t preferred_ = 0;
  MessageWayTimes ways_;
};

}  // namespace amldist::collective
