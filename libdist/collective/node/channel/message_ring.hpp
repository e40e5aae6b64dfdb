// A byte stream from one process to another of its node, through a ring in memory that both have mapped. One writes,
// one reads, neither blocks. Each end keeps its position privately and publishes a copy. The published position of the
// other end is checked, so that a damaged ring is detected and never leads outside its memory.
//
// Memory that the reader has just read is in its cache, where the writer waits for each line of it. So a long message
// takes memory that has not been used for a while (decision 41). Short messages, whose lines the writer asks for ahead
// of time, stay in the window in which they are, 128 KiB that the caches hold: when one has crossed the window's end,
// both ends skip the rest of the ring, which leads back to the window's beginning. A long message leads to the next.
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

#include "collective/kernels/shared_copy.hpp"
#include "collective/node/channel/message_way.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// An empty ring is zeroed memory, aligned to a cache line.
struct MessageRing {
  static constexpr std::size_t line = 64;
  /// Bytes of a message for which each line counts. Next to those of a longer one, that line's time is little.
  static constexpr std::size_t brief = 2048;
  static constexpr std::size_t window = 128UL << 10;  ///< bytes in which short messages go round
  /// Bytes of each ring of this many ranks, a multiple of a window and a power of two: many rings get less memory.
  [[nodiscard]] static constexpr std::size_t capacity_of(std::size_t ranks) noexcept {
    return ranks <= 8 ? 4 * window : ranks <= 16 ? 2 * window : window;
  }
  /// The same with what precedes it.
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t ranks) noexcept {
    return sizeof(MessageRing) + capacity_of(ranks);
  }

  alignas(line) std::atomic<std::uint64_t> written;  ///< the writer's position: bytes since the beginning, with those
                                                     ///< that were skipped
  std::atomic<std::uint64_t> key;                    ///< random; 0 until the writer is there
  std::atomic<std::uint64_t> has_given_up;           ///< 1: the memory that the writer offered may have changed
  alignas(line) std::atomic<std::uint64_t> taken;    ///< the reader's position
  std::atomic<std::uint64_t> fetched;                ///< messages that the reader has fetched from the writer's memory
  std::atomic<std::uint64_t> preferred;              ///< set by the reader: PreferredWays

  [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(MessageRing) % MessageRing::line == 0);

/// The beginning of a message.
struct MessageStart {
  std::uint32_t signature = 0;
  MessageWay way = MessageWay::copied;  ///< fetched: its address follows its length; else its data follows
  bool goes_both_ways = false;          ///< its class, see tuning::message_class()

  static constexpr std::uint64_t fetched_bit = std::uint64_t{1} << 62;
  static constexpr std::uint64_t streamed_bit = std::uint64_t{1} << 61;
  static constexpr std::uint64_t both_ways_bit = std::uint64_t{1} << 60;
  /// What the words of two messages of one signature may differ in.
  static constexpr std::uint64_t way_bits = fetched_bit | streamed_bit | both_ways_bit;
  /// The word of a message, before the position is added.
  [[nodiscard]] std::uint64_t word() const noexcept {
    return std::uint64_t{1} << 63 | bit_of(way) | (goes_both_ways ? both_ways_bit : 0) | signature;
  }
  /// nullopt if it is no such word.
  [[nodiscard]] static std::optional<MessageStart> from(std::uint64_t word) noexcept {
    const MessageWay way = (word & fetched_bit) != 0    ? MessageWay::fetched
                           : (word & streamed_bit) != 0 ? MessageWay::streamed
                                                        : MessageWay::copied;
    const MessageStart out = {static_cast<std::uint32_t>(word), way, (word & both_ways_bit) != 0};
    return out.word() == word ? std::optional(out) : std::nullopt;
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
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Whether this many bytes from here on end before the ring does.
  [[nodiscard]] bool are_in_one_piece(std::size_t bytes) const noexcept {
    return bytes <= capacity_ - (at_ & (capacity_ - 1));
  }
  /// Advances to the next cache line, unless one begins here.
  void end_line() noexcept { at_ = (at_ + MessageRing::line - 1) / MessageRing::line * MessageRing::line; }

 protected:
  RingEnd(MessageRing& ring, std::size_t capacity) : ring_(&ring), data_(ring.data()), capacity_(capacity) {}

  /// Whether long messages have used all of the ring. Until then its memory comes page by page from the kernel, and a
  /// message takes longer than it ever will again: that must not decide how messages travel.
  [[nodiscard]] bool is_touched() const noexcept { return passed_ > 2 * capacity_; }
  [[nodiscard]] bool are_valid(std::uint64_t written, std::uint64_t taken) const noexcept {
    const std::uint64_t between = written - taken;
    return between <= capacity_ && between % MessageRing::line == 0;
  }
  [[nodiscard]] static constexpr std::size_t in_lines(std::size_t bytes) noexcept {
    return (bytes + MessageRing::line - 1) / MessageRing::line * MessageRing::line;
  }
  [[nodiscard]] std::byte* place(std::uint64_t position) const noexcept { return data_ + (position & (capacity_ - 1)); }
  /// What both ends skip behind a short message of these positions.
  [[nodiscard]] std::size_t skipped(std::uint64_t begin, std::uint64_t end) const noexcept {
    return begin / MessageRing::window == end / MessageRing::window ? 0 : capacity_ - MessageRing::window;
  }
  /// Ends a line, and a short message if `whole_short` is not 0 (see RingWriter::publish()).
  void end_part(std::size_t whole_short) noexcept {
    end_line();
    if (whole_short != 0) at_ += skipped(at_ - in_lines(whole_short), at_);
    else passed_ += at_ - ended_;
    ended_ = at_;
  }
  /// Advances behind a short message of this many bytes of header and data.
  void pass_short(std::size_t bytes) noexcept {
    const std::uint64_t end = at_ + in_lines(bytes);
    ended_ = at_ = end + skipped(at_, end);
  }
  /// The word of a message that begins here. What the ring held before may be anything; it equals the word by chance
  /// only once in 2^64.
  [[nodiscard]] std::uint64_t word_of(const MessageStart& start) const noexcept { return (key_ + at_) ^ start.word(); }
  [[nodiscard]] std::atomic_ref<std::uint64_t> word_at(std::uint64_t position) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(place(position)));
  }
  /// Advances by `bytes` and calls `copy` for the one or two pieces of the ring that they occupy.
  template <typename Copy>
  void pass(std::size_t bytes, Copy copy) noexcept {
    const std::size_t first = std::min<std::size_t>(bytes, capacity_ - (at_ & (capacity_ - 1)));
    copy(place(at_), std::size_t{0}, first);
    copy(data_, first, bytes - first);
    at_ += bytes;
  }

  MessageRing* ring_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t at_ = 0;
  std::uint64_t ended_ = 0;   ///< where the last part ended
  std::uint64_t passed_ = 0;  ///< bytes of long messages
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

  /// Whether this many bytes may be written before the next publish(). Reads the reader's position only if they are not
  /// known to fit. nullopt if the ring is damaged.
  [[nodiscard]] std::optional<bool> fits(std::size_t bytes) noexcept {
    if (capacity_ - (at_ - other_) >= bytes) return true;
    const std::uint64_t taken = ring_->taken.load(std::memory_order_acquire);
    if (!are_valid(at_, taken)) return std::nullopt;
    other_ = taken;
    return capacity_ - (at_ - other_) >= bytes;
  }
  /// Whether a short message fits: this many bytes of header and data, and what is skipped behind them.
  [[nodiscard]] std::optional<bool> fits_short(std::size_t bytes) noexcept {
    return fits(in_lines(bytes) + skipped(at_, at_ + in_lines(bytes)));
  }
  /// By streaming stores, if the way is `streamed`.
  void put(std::span<const std::byte> bytes, MessageWay way = MessageWay::copied) noexcept {
    pass(bytes.size(), [&](std::byte* to, std::size_t from, std::size_t count) {
      if (way == MessageWay::streamed) copy_by_streaming(to, bytes.data() + from, count);
      else copy_in(to, bytes.data() + from, count);
    });
  }
  void begin_message(const MessageStart& start) noexcept {
    begun_ = at_;
    word_ = word_of(start);
    has_begun_ = true;
    at_ += word_bytes;
    offered_ += start.way == MessageWay::fetched ? 1 : 0;
  }
  /// A whole short message: what begin_message(), put() of its length, end_line() if its data begins on a line of its
  /// own, put() of the data, and publish() do. None has begun; this one is `copied`, fits_short(), and is in one piece.
  void write_short(const MessageStart& start, std::size_t header_bytes, std::span<const std::byte> data) noexcept {
    const std::uint64_t begin = at_;
    const std::uint64_t word = word_of(start);
    const std::uint64_t length = data.size();
    std::memcpy(place(begin) + word_bytes, &length, sizeof length);
    copy_in(place(begin) + header_bytes, data.data(), length);
    pass_short(header_bytes + length);
    word_at(begin).store(word, std::memory_order_release);
    ring_->written.store(at_, std::memory_order_release);
    if (header_bytes + length <= MessageRing::brief) prefetch_for_next(header_bytes + length);
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
  /// Publishes what was written. `whole_short`: the bytes of header and data of a short message, which is whole now;
  /// else 0.
  void publish(std::size_t whole_short) noexcept {
    const std::uint64_t part = at_ - begun_;
    const bool is_brief = has_begun_ && part <= MessageRing::brief;
    end_part(whole_short);
    if (std::exchange(has_begun_, false)) word_at(begun_).store(word_, std::memory_order_release);
    ring_->written.store(at_, std::memory_order_release);
    if (is_brief) prefetch_for_next(part);
  }

 private:
  void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    prefetch_for_copy(to, bytes);
    copy_.copy(to, from, bytes);
  }
  /// Prefetches the lines of the next message, which is likely to be as long as this one: those for which
  /// prefetch_for_copy() does nothing. More at once would delay what this rank does meanwhile.
  void prefetch_for_next(std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < std::min(bytes, few_lines); i += MessageRing::line) prefetch_for_write(place(at_ + i));
  }

  std::uint64_t begun_ = 0;  ///< where the message begins that was started since the last publish()
  std::uint64_t word_ = 0;
  bool has_begun_ = false;
  std::uint64_t offered_ = 0;
  MessageWayChoice ways_;
};

class RingReader : public RingEnd {
 public:
  RingReader(MessageRing& ring, std::size_t capacity) : RingEnd(ring, capacity) {}

  /// Whether an announced message of this signature begins here. Then its header can be read, and the part that it
  /// announces must be reported to known().
  [[nodiscard]] bool is_announced(std::uint32_t signature) noexcept {
    constexpr int polls = 3;  // the line of the position stays with the writer meanwhile
    if (key_ == 0) key_ = ring_->key.load(std::memory_order_relaxed);
    if (key_ == 0) return false;
    const std::uint64_t copied = word_of({signature});
    for (int poll = 0; poll < polls; ++poll) {
      const std::uint64_t other = word_at(at_).load(std::memory_order_acquire) ^ copied;
      if ((other & ~MessageStart::way_bits) == 0) return true;
      relax_briefly();
    }
    return false;
  }
  /// A message that begins here: in one word, which is faster to return.
  class Announced {
   public:
    [[nodiscard]] std::uint64_t length() const noexcept { return word_ & ~MessageStart::way_bits; }  ///< bytes
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
  /// nullopt unless a message of this signature begins here, and all of its first part is in the ring.
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
  /// Takes the header of the message that announced() has found. `part`: the header and what comes with it.
  void take_header(std::size_t header_bytes, std::size_t part) noexcept {
    known(at_, part);
    at_ += header_bytes;
  }
  /// Takes the rest of the header of an offered message, behind its length: the address of its data.
  [[nodiscard]] std::uint64_t take_address() noexcept {
    std::uint64_t address = 0;
    take(std::as_writable_bytes(std::span(&address, 1)));
    release(0);
    return address;
  }
  /// Takes the whole of a short message that announced() has found and that is in one piece: what take_header(), take()
  /// of its data, and release() do.
  void read_short(std::size_t header_bytes, std::span<std::byte> data) noexcept {
    copy_.copy(data.data(), place(at_) + header_bytes, data.size());
    pass_short(header_bytes + data.size());
    // A rank that found this message at its first look is behind, so the next one is probably there, too. Otherwise the
    // writer is about to write that line, and to ask for it would take it away.
    if (!std::exchange(has_waited_, false)) prefetch_for_reading(place(at_));
    known_ = std::max(known_, at_);
    ring_->taken.store(at_, std::memory_order_release);
  }
  /// This many bytes from `position` on can be read, whether the writer's position shows it or not.
  void known(std::uint64_t position, std::size_t bytes) noexcept {
    known_ = std::max(known_, position + in_lines(bytes));
  }
  [[nodiscard]] std::uint64_t position() const noexcept { return at_; }
  /// Bytes that can be read before the next release(); nullopt if the ring is damaged.
  [[nodiscard]] std::optional<std::size_t> available(std::size_t wanted) noexcept {
    if (known_ < at_ + wanted) {
      const std::uint64_t written = ring_->written.load(std::memory_order_acquire);
      const bool is_ahead = written > at_;
      if (written < other_ || written % MessageRing::line != 0) return std::nullopt;
      if (is_ahead && written - at_ > capacity_) return std::nullopt;
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
    pass(bytes.size(),
         [&](const std::byte* from, std::size_t to, std::size_t count) { copy_.copy(bytes.data() + to, from, count); });
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
  /// Returns the space of what was read to the writer. `whole_short`: as RingWriter::publish().
  void release(std::size_t whole_short) noexcept {
    end_part(whole_short);
    known_ = std::max(known_, at_);  // the writer's position may be behind what was skipped
    ring_->taken.store(at_, std::memory_order_release);
  }

 private:
  std::uint64_t known_ = 0;  ///< the ring can be read up to here
  bool has_waited_ = false;  ///< announced() has found nothing since the last short message
  std::uint64_t fetched_ = 0;
  PreferredWays preferred_;
  MessageWayTimes ways_;
};

}  // namespace amldist::collective
