// A stream of messages from one process to another of its node, through a ring in memory that both have mapped. One
// writes, one reads, neither blocks. Each end keeps its position privately and publishes a copy. The published position
// of the other end is checked, so that a damaged ring is detected and never leads outside its memory.
//
// A short message is in the ring. Of a long one, the ring has a line for each part, which says where its data is: in
// the pair's blocks (message_blocks.hpp), or in the writer's own memory.
//
// Positions are multiples of a cache line: every message and every part begins on a new cache line, with a word of its
// own. That word announces it once all of it is there, so that a reader which polls the word gets it with the data,
// without reading the line of the writer's position.
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

#include "collective/kernels/shared_copy.hpp"
#include "collective/node/channel/message_way.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// An empty ring is zeroed memory, aligned to a cache line.
struct MessageRing {
  static constexpr std::size_t line = 64;
  /// Bytes of a message for which each line counts. Next to those of a longer one, that line's time is little.
  static constexpr std::size_t brief = 2048;
  /// Bytes of each ring of this many ranks, a power of two: the caches hold them, and many rings get less memory.
  [[nodiscard]] static constexpr std::size_t capacity_of(std::size_t ranks) noexcept {
    return ranks <= 16 ? 128UL << 10 : 64UL << 10;
  }
  /// The same with what precedes it.
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t ranks) noexcept {
    return sizeof(MessageRing) + capacity_of(ranks);
  }

  alignas(line) std::atomic<std::uint64_t> written;  ///< the writer's position: bytes since the beginning
  std::atomic<std::uint64_t> key;                    ///< random; 0 until the writer is there
  std::atomic<std::uint64_t> has_given_up;           ///< 1: the memory that the writer offered may have changed
  alignas(line) std::atomic<std::uint64_t> taken;    ///< the reader's position
  std::atomic<std::uint64_t> fetched;                ///< messages that the reader has fetched from the writer's memory
  std::atomic<std::uint64_t> preferred;              ///< set by the reader: PreferredWays

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(MessageRing) % MessageRing::line == 0);

/// What the word of a message, or of a part of it, says.
struct MessageStart {
  std::uint32_t signature = 0;
  MessageWay way = MessageWay::copied;
  bool goes_both_ways = false;  ///< its class, see tuning::message_class()

  static constexpr std::uint64_t fetched_bit = std::uint64_t{1} << 62;
  static constexpr std::uint64_t streamed_bit = std::uint64_t{1} << 61;
  static constexpr std::uint64_t both_ways_bit = std::uint64_t{1} << 60;
  /// What the words of two messages of one signature may differ in.
  static constexpr std::uint64_t way_bits = fetched_bit | streamed_bit | both_ways_bit;
  /// The word, before the position is added.
  [[nodiscard]] std::uint64_t word() const noexcept {
    return std::uint64_t{1} << 63 | bit_of(way) | (goes_both_ways ? both_ways_bit : 0) | signature;
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t bit_of(MessageWay way) noexcept {
    return way == MessageWay::fetched ? fetched_bit : way == MessageWay::streamed ? streamed_bit : 0;
  }
};

/// Common to both ends: the ring, this end's position, and the last known position of the other end.
class RingEnd {
 public:
  /// Bytes that precede the contents of a message.
  static constexpr std::size_t word_bytes = sizeof(std::uint64_t);
  /// Bytes of long messages after which all of their memory has been used. Until then it comes page by page from the
  /// kernel, and a message takes longer than it ever will again: that must not decide how messages travel.
  static constexpr std::uint64_t first_use = 1UL << 20;
  /// `bytes` of a long message have passed.
  void note_long(std::size_t bytes) noexcept { passed_ += bytes; }

 protected:
  RingEnd(MessageRing& ring, std::size_t capacity) : ring_(&ring), data_(ring.data()), capacity_(capacity) {}

  [[nodiscard]] bool is_touched() const noexcept { return passed_ > first_use; }
  [[nodiscard]] bool are_valid(std::uint64_t written, std::uint64_t taken) const noexcept {
    const std::uint64_t between = written - taken;
    return between <= capacity_ && between % MessageRing::line == 0;
  }
  [[nodiscard]] static constexpr std::size_t in_lines(std::size_t bytes) noexcept {
    return (bytes + MessageRing::line - 1) / MessageRing::line * MessageRing::line;
  }
  [[nodiscard]] std::byte* place(std::uint64_t position) const noexcept { return data_ + (position & (capacity_ - 1)); }
  /// The word of what begins here. What the ring held before may be anything; it equals the word by chance only once in
  /// 2^64.
  [[nodiscard]] std::uint64_t word_of(const MessageStart& start) const noexcept { return (key_ + at_) ^ start.word(); }
  [[nodiscard]] std::atomic_ref<std::uint64_t> word_at(std::uint64_t position) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(place(position)));
  }
  /// Calls `copy` for the one or two pieces of the ring that `bytes` occupy from `position` on.
  template <typename Copy>
  void for_pieces(std::uint64_t position, std::size_t bytes, Copy copy) const noexcept {
    const std::size_t first = std::min<std::size_t>(bytes, capacity_ - (position & (capacity_ - 1)));
    copy(place(position), std::size_t{0}, first);
    if (first != bytes) copy(data_, first, bytes - first);
  }

  MessageRing* ring_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t at_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t other_ = 0;
  std::uint64_t key_ = 0;
  SharedCopy copy_;
};

class RingWriter : public RingEnd {
 public:
  /// `key`: random, not 0.
  RingWriter(MessageRing& ring, std::size_t capacity, std::uint64_t key) : RingEnd(ring, capacity) {
    key_ = key;
    ring.key.store(key, std::memory_order_relaxed);  // seen with the first position or after it
  }

  /// Whether this many bytes may be written. Reads the reader's position only if they are not known to fit. nullopt if
  /// the ring is damaged.
  [[nodiscard]] std::optional<bool> fits(std::size_t bytes) noexcept {
    if (capacity_ - (at_ - other_) >= bytes) return true;
    const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
    if (!are_valid(at_, taken)) return std::nullopt;
    other_ = taken;
    return capacity_ - (at_ - other_) >= bytes;
  }
  /// A whole short message, which fits(): the word, its length, and its data behind `header_bytes`.
  void write_short(const MessageStart& start, std::size_t header_bytes, std::span<const std::byte> data) noexcept {
    const std::uint64_t length = data.size();
    std::memcpy(place(at_) + word_bytes, &length, sizeof length);
    for_pieces(at_ + header_bytes, length, [&](std::byte* to, std::size_t from, std::size_t count) {
      prefetch_for_copy(to, count);
      copy_.copy(to, data.data() + from, count);
    });
    publish(start, header_bytes + length);
    if (header_bytes + length <= MessageRing::brief) prefetch_for_next(header_bytes + length);
  }
  /// A line that fits(): of a part of a message of `length` bytes whose data is in the blocks, at `place`, or of one
  /// that is fetched from that address.
  void write_line(const MessageStart& start, std::uint64_t length, std::uint64_t where) noexcept {
    const std::uint64_t contents[] = {length, where};
    std::memcpy(place(at_) + word_bytes, contents, sizeof contents);
    publish(start, MessageRing::line);
    prefetch_for_next(MessageRing::line);
    offered_ += start.way == MessageWay::fetched ? 1 : 0;
  }
  /// The way of the next message of this tuning::message_class(). `can_fetch`: the reader may read this process'
  /// memory.
  [[nodiscard]] MessageWay next_way(std::size_t message_class, bool can_fetch) const noexcept {
    if (!is_touched()) return MessageWay::copied;
    return ways_.next(message_class, PreferredWays(ring_->preferred.load(std::memory_order_relaxed)), can_fetch);
  }
  /// A message for which next_way() was asked has begun.
  void count(std::size_t message_class) noexcept {
    if (is_touched()) ways_.count(message_class);
  }
  /// Messages that were offered, the last one included.
  [[nodiscard]] std::uint64_t offered() const noexcept { return offered_; }
  /// Whether the reader has fetched the message that was the `number`th to be offered, the oldest that it is not known
  /// to have fetched. nullopt if the ring is damaged.
  [[nodiscard]] std::optional<bool> is_fetched(std::uint64_t number) const noexcept {
    const std::uint64_t fetched = ring_->fetched.load(std::memory_order_acquire);
    if (fetched > offered_ || fetched + 1 < number) return std::nullopt;
    return fetched >= number;
  }
  void give_up() noexcept { ring_->has_given_up.store(1, std::memory_order_release); }

 private:
  void publish(const MessageStart& start, std::size_t bytes) noexcept {
    const std::uint64_t begin = at_;
    const std::uint64_t word = word_of(start);
    at_ += in_lines(bytes);
    word_at(begin).store(word, std::memory_order_release);
    ring_->written.store(at_, std::memory_order_release);
  }
  /// Prefetches the lines of the next message, which is likely to be as long as this one: those for which
  /// prefetch_for_copy() does nothing. More at once would delay what this rank does meanwhile.
  void prefetch_for_next(std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < std::min(bytes, few_lines); i += MessageRing::line) prefetch_for_write(place(at_ + i));
  }

  std::uint64_t offered_ = 0;
  MessageWayChoice ways_;
};

class RingReader : public RingEnd {
 public:
  RingReader(MessageRing& ring, std::size_t capacity) : RingEnd(ring, capacity) {}

  /// A message, or a part of one, that begins here: in one word, which is faster to return.
  class Announced {
   public:
    /// Bytes of the message.
    [[nodiscard]] std::uint64_t length() const noexcept { return word_ & ~MessageStart::way_bits; }
    [[nodiscard]] bool is_offered() const noexcept { return (word_ & MessageStart::fetched_bit) != 0; }
    [[nodiscard]] MessageWay way() const noexcept {
      if (is_offered()) return MessageWay::fetched;
      return (word_ & MessageStart::streamed_bit) == 0 ? MessageWay::copied : MessageWay::streamed;
    }
    [[nodiscard]] bool goes_both_ways() const noexcept { return (word_ & MessageStart::both_ways_bit) != 0; }

   private:
    friend RingReader;
    explicit Announced(std::uint64_t word) : word_(word) {}
    std::uint64_t word_;
  };
  /// nullopt unless a message of this signature, or a part of it, begins here.
  [[nodiscard]] std::optional<Announced> announced(std::uint32_t signature) noexcept {
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    if (key_ == 0) return std::nullopt;
    const std::uint64_t other = word_at(at_).load(std::memory_order_acquire) ^ word_of({signature});
    if ((other & ~MessageStart::way_bits) != 0) {
      has_waited_ = true;
      return std::nullopt;
    }
    const std::uint64_t length = word_at(at_ + word_bytes).load(std::memory_order_relaxed);
    if ((length & MessageStart::way_bits) != 0) return std::nullopt;  // it would pass for another way
    return Announced(length | other);
  }
  /// Where the data is of the line that announced() has found (RingWriter::write_line()).
  [[nodiscard]] std::uint64_t where() const noexcept {
    std::uint64_t where = 0;
    std::memcpy(&where, place(at_) + 2 * word_bytes, sizeof where);
    return where;
  }
  /// Takes that line.
  void take_line() noexcept { release(MessageRing::line); }
  /// Takes the whole of a short message that announced() has found.
  void read_short(std::size_t header_bytes, std::span<std::byte> data) noexcept {
    for_pieces(at_ + header_bytes, data.size(), [&](const std::byte* from, std::size_t to, std::size_t count) {
      copy_.copy(data.data() + to, from, count);
    });
    release(header_bytes + data.size());
  }
  /// Whether the writer's position shows that something begins here; nullopt if the ring is damaged.
  [[nodiscard]] std::optional<bool> has_more() noexcept {
    const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
    const bool is_ahead = written > at_;
    if (written < other_ || written % MessageRing::line != 0) return std::nullopt;
    if (is_ahead && written - at_ > capacity_) return std::nullopt;
    other_ = written;
    return is_ahead;
  }
  /// All of the message that was offered has been fetched.
  void finish_fetching() noexcept { ring_->fetched.store(++fetched_, std::memory_order_release); }
  /// Whether the writer gave up. If not, what was fetched before is what it offered.
  [[nodiscard]] bool has_given_up() const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return ring_->has_given_up.load(std::memory_order_relaxed) != 0;
  }
  /// Whether note() wants to know how long this message takes.
  [[nodiscard]] bool is_timed(std::size_t message_class, MessageWay way) noexcept {
    return is_touched() && ways_.wants(message_class, way);
  }
  /// A message of this many bytes has taken this long, from its header to its end.
  void note(std::size_t message_class, MessageWay way, std::size_t bytes, std::chrono::nanoseconds took) noexcept {
    const auto picoseconds = static_cast<std::uint64_t>(took.count()) * 1000;
    const PreferredWays now = ways_.note(message_class, way, picoseconds / bytes);
    if (std::exchange(preferred_, now) != now) ring_->preferred.store(now.bits(), std::memory_order_relaxed);
  }

 private:
  /// Returns the space of what was read to the writer.
  void release(std::size_t bytes) noexcept {
    at_ += in_lines(bytes);
    // A rank that found this at its first look is behind, so the next one is probably there, too. Otherwise the writer
    // is about to write that line, and to ask for it would take it away.
    if (!std::exchange(has_waited_, false)) prefetch_for_reading(place(at_));
    ring_->taken.store(at_, std::memory_order_release);
  }

  bool has_waited_ = false;  ///< announced() has found nothing since the last release()
  std::uint64_t fetched_ = 0;
  PreferredWays preferred_;
  MessageWayTimes ways_;
};

}  // namespace amldist::collective
