// SlotChannel: keeps the processes of one node in step over shared memory. Every collective of a node is a sequence of
// its rounds.
//
// In round k every rank publishes one cache line ("line" below) with the number of the round, the signature of its
// call, and 56 bytes of data. A rank that needs another's contribution waits for its line. Larger contributions go into
// a short buffer beside it or into the rank's staging buffer, which has four slots, one for each of four consecutive
// rounds.
//
//   rank 0  line[k%16]  k | signature | data       short[k%16]  up to 2 KiB       stage[k%4]  up to slot_bytes()
//   rank 1  ...
//
// Why four suffice: a rank writes into the slot of round k after it has seen every other rank's line of round k-2
// (begin() waits for that). A rank publishes round k-2 only after it has finished reading all rounds up to k-4. The
// caller must ensure this: when it publishes round j, it has read everything of rounds before j-1. There are sixteen
// lines and short buffers for the same reason: a round that uses no slot (begin_short()) waits for round k-14 only, so
// if data goes one way, the sender need not wait for each message to arrive. Once it must wait, it does so until the
// others are half as far behind: it looks at one of their lines in every seventh round, and not in each. If ranks share
// processors, each wait is a turn of all of them, so there they have 128.
//
// Staging memory that was used a moment ago is still in the caches of the rank that read it, and until it has left
// them, writing it takes two to four times as long (decision 33). So contributions take turns in several positions of
// their slot (use_slots()), which may have more than slot_bytes() for that. If ranks share processors, they do so only
// if data goes one way, and for another reason: with n positions in the four slots, all used since this layout began,
// the sender may be n-2 rounds ahead by the proof above.
//
// Or two ranks trade their slots (trade_slots()): when one is used again, it is the other rank that writes to it, which
// was the last to read it and has it in its caches (decision 46). That is as safe: who writes to a slot of four rounds
// ago has seen that every rank has finished with it.
//
// Because the line carries the signature, a rank that makes another call is detected immediately and at no cost.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calls/watchdog.hpp"
#include "collective/node/channel/processor_contention.hpp"
#include "collective/node/channel/relax.hpp"
#include "collective/node/channel/timed_pauses.hpp"
#include "collective/node/memory/shared_memory.hpp"

namespace amldist::collective {

/// This rank's place among the ranks of its node.
struct NodeGroup {
  std::uint32_t rank = 0;               ///< within the node
  std::uint32_t size = 1;               ///< ranks of the communicator on this node
  std::vector<int> communicator_ranks;  ///< of each, for the watchdog
  std::string host;                     ///< name of the node, for people
};

class SlotChannel {
 public:
  static constexpr std::size_t line_data = 56;
  static constexpr std::size_t short_data = 2048;
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t lines = 16;  ///< and short buffers
  /// Where ranks share processors; there is memory for as many everywhere.
  static constexpr std::size_t lines_oversubscribed = 128;

  /// Bytes of shared memory that `ranks` need with slots of `slot_bytes` each.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t ranks, std::size_t slot_bytes) noexcept;
  /// `memory` must be zeroed and must outlive this object.
  SlotChannel(std::byte* memory, NodeGroup place, std::size_t slot_bytes, bool oversubscribed);

  [[nodiscard]] std::uint32_t rank() const noexcept { return place_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return place_.size; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] const NodeGroup& place() const noexcept { return place_; }
  /// Rounds that this rank has begun.
  [[nodiscard]] std::uint32_t rounds() const noexcept { return round_; }
  /// Whether the node has more ranks than processors. Then waiting ranks yield at once.
  [[nodiscard]] bool is_oversubscribed() const noexcept { return oversubscribed_; }

  /// Begins a call: its rounds carry this signature.
  void begin_call(std::uint32_t signature) noexcept {
    signature_ = signature;
    pauses_.begin_call();
    first_of_call_ = round_ + 1;
    last_position_ = 0;
    is_trading_ = false;
  }
  enum class Flow : std::uint8_t { both_ways, one_way };
  /// The next rounds of this call use up to `bytes` of their slots, on all ranks alike: only then may it be called.
  /// `buffers`, also equal on all ranks, are the bytes that a rank sends and receives together; if data goes one way,
  /// even in a reduce, the bytes from or to the root. In that case call it before begin().
  void use_slots(std::size_t bytes, std::size_t buffers, Flow flow = Flow::both_ways) noexcept;
  /// From the next use_slots() on, two ranks with a processor each trade their slots, or do not; on all ranks alike.
  /// Between more ranks, or ranks that share processors, it does nothing.
  void trade_slots(bool trades) noexcept { trades_ = trades && place_.size == 2 && !oversubscribed_; }
  [[nodiscard]] const VainLooks& vain_looks() const noexcept { return pauses_.looks(); }  ///< of this call
  /// From now on, waits use this watchdog.
  void wait_under(calls::Watchdog& watchdog) noexcept { watchdog_ = &watchdog; }

  /// The longest sleep of a rank before the watchdog looks again.
  void look_every(std::chrono::nanoseconds period) noexcept { longest_sleep_ = period; }

  /// Begins the next round. Afterwards own_slot(), own_line() and own_place() may be written.
  [[nodiscard]] Result<void> begin() {
    if (!oversubscribed_) return begin_after(slots - 2, slots - 2);
    note_layout();
    if (last_position_ == 0) return begin_after(slots - 2, slots - 2);
    const std::uint32_t ahead = rounds_ahead();
    return begin_after(ahead, std::max<std::uint32_t>(slots - 2, ahead / 2));
  }
  /// The same for a round in which no rank uses its slot: other ranks may be more rounds behind.
  [[nodiscard]] Result<void> begin_short() { return begin_after(last_line_ - 1, last_line_ / 2); }
  /// Begins the next round if that needs no waiting; returns whether it did.
  [[nodiscard]] bool try_begin() noexcept {
    for (const std::uint32_t seen : seen_) {
      if (static_cast<std::int32_t>(seen - (round_ - 1)) < 0) return false;
    }
    note_layout();
    ++round_;
    return true;
  }
  /// Publishes this rank's contribution to the current round.
  void publish() noexcept {
    line(place_.rank, round_).word.store(word_of(round_), std::memory_order_release);
    seen_[place_.rank] = round_;
    // No fence, which would take as long as a short call: a rank that falls asleep at this moment is missed, and wakes
    // up by itself after a millisecond.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (has_sleepers()) [[unlikely]]
      wake_up();
  }
  /// Whether ranks sleep until this one publishes.
  [[nodiscard]] bool has_sleepers() const noexcept {
    return waiting_[place_.rank].sleepers.load(std::memory_order_relaxed) != 0;
  }
  /// Call it after publish() if the next round is likely to be written next: that write becomes faster. No rank reads
  /// that line any more. (With data in slots it makes calls slower, because the slots' cache lines are being
  /// transferred then.)
  void prefetch_next_line() noexcept { prefetch_for_write(&line(place_.rank, round_ + 1)); }
  /// Waits for a rank's line of round current()-`back`; `back` is 0 or 1.
  [[nodiscard]] Result<void> await(std::uint32_t peer, std::uint32_t back = 0) {
    const std::uint32_t wanted = round_ - back;
    if (static_cast<std::int32_t>(seen_[peer] - wanted) >= 0) return {};
    return wait_until(peer, wanted);
  }
  /// await() for a rank that sends without receiving: if it is ahead, its next lines are fetched, too.
  [[nodiscard]] Result<void> await_stream(std::uint32_t peer) {
    bool differs = false;
    if (!has_come(peer, round_, differs) || differs) return wait_until(peer, round_);
    prefetch_for_reading(&line(peer, round_ + 1));
    prefetch_for_reading(&line(peer, round_ + 2));
    return {};
  }
  /// Call it before waiting for ranks that copy this many bytes to their slots. Polling a line takes it from its
  /// writer, which must fetch it back to publish; so do not poll before the copy can be finished.
  void delay_polling(std::size_t bytes) const noexcept;
  [[nodiscard]] Result<void> await_all(std::uint32_t back = 0) {
    return for_all_others([&](std::uint32_t peer) { return await(peer, back); });
  }
  /// The same if the ranks show `bytes` at place_of(), and all of it is read next.
  [[nodiscard]] Result<void> await_all_places(std::size_t bytes) {
    if (bytes <= line_data || bytes > longest_polled || oversubscribed_) return await_all();
    return for_all_others([&](std::uint32_t peer) { return await_short(peer, bytes); });
  }

  /// The peer's contribution does not match this rank's call; ends the call with an error.
  [[nodiscard]] Error differs(std::uint32_t peer) { return watchdog_->differs(place_.communicator_ranks[peer]); }
  /// What the peer published is invalid; ends the call with an error.
  [[nodiscard]] Error is_damaged(std::uint32_t peer) {
    return watchdog_->lost(place_.communicator_ranks[peer], "what it wrote to shared memory is damaged");
  }

  /// This rank ends a call with an error: from now on the contents of its buffers are undefined.
  void give_up() noexcept { waiting_[place_.rank].has_given_up.store(1, std::memory_order_release); }
  /// Whether the peer did. If not, what was read from its buffers before was the data of the call.
  [[nodiscard]] bool has_given_up(std::uint32_t peer) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return waiting_[peer].has_given_up.load(std::memory_order_relaxed) != 0;
  }
  /// Memory of the peer's process cannot be read; `why` is a clause for people. Ends the call with an error.
  [[nodiscard]] Error cannot_reach(std::uint32_t peer, std::string_view why) {
    return watchdog_->lost(place_.communicator_ranks[peer], why);
  }
  /// `bytes` that the peer gave as a buffer are not memory of its process.
  [[nodiscard]] Error has_bad_buffer(std::uint32_t peer, std::size_t bytes, std::string_view why) const;

  [[nodiscard]] std::byte* own_line() noexcept { return line(place_.rank, round_).data; }
  [[nodiscard]] std::byte* line_of(std::uint32_t peer, std::uint32_t back = 0) noexcept {
    return line(peer, round_ - back).data;
  }
  /// Where a rank shows `bytes`: in its line, its short buffer or its slot. All ranks must ask for the same number.
  [[nodiscard]] std::byte* place_of(std::uint32_t peer, std::size_t bytes) noexcept {
    return bytes <= line_data ? line_of(peer) : bytes <= short_data ? short_of(peer) : slot_of(peer);
  }
  [[nodiscard]] std::byte* own_place(std::size_t bytes) noexcept { return place_of(place_.rank, bytes); }
  [[nodiscard]] std::byte* own_slot() noexcept { return slot_of(place_.rank); }
  [[nodiscard]] std::byte* slot_of(std::uint32_t peer, std::uint32_t back = 0) noexcept {
    const std::uint32_t round = round_ - back;
    const std::uint32_t uses =
        (round / std::uint32_t{slots}) >> std::bit_width(last_position_);  // of each position so far
    const std::uint32_t place = is_trading_ ? peer ^ (uses & 1) : peer;
    return stages_ + (static_cast<std::size_t>(place) * slots + round % slots) * slot_stride_ +
           (static_cast<std::size_t>(round / slots & last_position_) << position_shift_);
  }

 private:
  /// The amount of memory that a processor fetches at a time.
  static constexpr std::size_t longest_polled = 512;
  /// One cache line more than the data, so that short buffers are in different sets of a cache.
  static constexpr std::size_t short_stride = short_data + 64;

  struct alignas(64) Line {
    std::atomic<std::uint64_t> word;  // round << 32 | signature
    std::byte data[line_data];
  };
  static_assert(sizeof(Line) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);
  /// The half of a line's word that futexes use.
  [[nodiscard]] static const std::atomic<std::uint32_t>& round_in(const Line& line) noexcept {
    static_assert(std::endian::native == std::endian::little && std::atomic<std::uint32_t>::is_always_lock_free);
    return reinterpret_cast<const std::atomic<std::uint32_t>*>(&line.word)[1];
  }

  struct alignas(64) Waiting {
    std::atomic<int> processor;  ///< the processor on which the rank last waited for long, plus 1; 0: it never did
    std::atomic<int> has_given_up;
    std::atomic<std::uint32_t> sleepers;  ///< ranks that sleep until this one publishes
  };

  [[nodiscard]] std::size_t lines_in_use() const noexcept { return std::size_t{last_line_} + 1; }
  [[nodiscard]] Line& line(std::uint32_t peer, std::uint32_t round) noexcept {
    return lines_[peer * lines_in_use() + (round & last_line_)];
  }
  void map_rotation() noexcept;
  /// Bytes of a slot in which contributions take turns. Memory is used again after four slots, or two if every other
  /// round uses no slot: two ranks pass 2 MiB until then, more than their second-level caches have. A line that has
  /// left them costs a fraction of one that the peer still has.
  [[nodiscard]] static std::size_t rotation(std::uint32_t ranks, std::size_t slot_bytes, bool oversubscribed) noexcept;
  /// The same for a call with buffers of this length: if they are long, they drive everything else out of the caches
  /// anyway.
  [[nodiscard]] std::size_t rotation_for(std::size_t buffers) const noexcept;
  /// From one slot to the next.
  [[nodiscard]] static std::size_t slot_stride(std::uint32_t ranks, std::size_t slot_bytes) noexcept {
    return std::max(slot_bytes, rotation(ranks, slot_bytes, false));
  }
  /// The first round whose slots have the layout of the next round, for rounds_ahead().
  void note_layout() noexcept {
    const std::uint32_t layout = last_position_ == 0 ? 0 : position_shift_;
    if (layout == layout_) return;
    layout_ = layout;
    layout_since_ = round_ + 1;
  }
  /// How many rounds the next one may be ahead of the others. Its memory was last used as many rounds ago as there are
  /// positions, or before the layout changed: a rank that has published the second round of this layout has read that.
  [[nodiscard]] std::uint32_t rounds_ahead() const noexcept {
    const std::uint32_t positions = slots * (last_position_ + 1);
    const std::uint32_t begun = round_ + 1 - layout_since_;  // rounds of this layout
    const std::uint32_t since_second = std::max<std::uint32_t>(begun, slots - 1) - 1;
    return std::min({positions - 2, since_second, last_line_ - 1});
  }
  [[nodiscard]] std::byte* short_of(std::uint32_t peer) noexcept {
    return shorts_ + (peer * lines_in_use() + (round_ & last_line_)) * short_stride;
  }
  /// Begins the next round once every rank has published the one of `rounds` before. If a rank has not, waits until it
  /// has published the one of `then` before.
  [[nodiscard]] Result<void> begin_after(std::uint32_t rounds, std::uint32_t then) {
    const std::uint32_t wanted = round_ + 1 - rounds;
    for (std::uint32_t peer = 0; peer < place_.size; ++peer) {
      if (static_cast<std::int32_t>(seen_[peer] - wanted) >= 0) continue;
      if (auto status = wait_until(peer, round_ + 1 - then); !status) return status;
    }
    return advance();
  }
  [[nodiscard]] std::uint64_t word_of(std::uint32_t round) const noexcept {
    return static_cast<std::uint64_t>(round) << 32 | signature_;
  }
  [[nodiscard]] Result<void> advance() noexcept {
    ++round_;
    return {};
  }
  /// In the order of the ranks from the next one on, so that not all poll the same line.
  template <class Await>
  [[nodiscard]] Result<void> for_all_others(Await await_one) {
    std::uint32_t peer = place_.rank;
    for (std::uint32_t i = 1; i < place_.size; ++i) {
      peer = peer + 1 == place_.size ? 0 : peer + 1;
      if (auto status = await_one(peer); !status) return status;
    }
    return {};
  }
  /// await() that requests the data with each look at the line, so that both are on their way at the same time: the
  /// writer writes the data first.
  [[nodiscard]] Result<void> await_short(std::uint32_t peer, std::size_t bytes) {
    constexpr int polls = 64;
    for (int poll = 0; poll < polls; ++poll) {
      bool differs = false;
      const bool came = has_come(peer, round_, differs);
      prefetch_short(peer, bytes);
      if (differs) break;
      if (came) return {};
      pauses_.pause();
    }
    return wait_until(peer, round_);
  }
  void prefetch_short(std::uint32_t peer, std::size_t bytes) noexcept {
    const std::byte* const begin = short_of(peer);
    for (std::size_t i = 0; i < bytes; i += sizeof(Line)) prefetch_for_reading(begin + i);
  }
  [[nodiscard]] Result<void> wait_until(std::uint32_t peer, std::uint32_t round);
  [[nodiscard]] Result<void> wait_slowly(std::uint32_t peer, std::uint32_t round);
  /// Waits until the peer publishes `round`, or for about a millisecond.
  void sleep(std::uint32_t peer, std::uint32_t round) noexcept;
  /// The ranks that sleep until this one publishes.
  [[gnu::cold]] void wake_up() noexcept;
  /// Contention of the processor, as this wait sees it: the program's own computation counts only while no thread waits
  /// for the call.
  [[nodiscard]] ProcessorContention& contention() noexcept {
    return watchdog_->is_unawaited() ? unawaited_contention_ : contention_;
  }
  /// Polls for a while if the peer is on another processor; returns whether its line arrived.
  [[nodiscard, gnu::noinline]] bool spin_apart(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept;
  /// Whether the peer last waited on another processor than this rank's, as far as is known.
  [[nodiscard]] bool is_apart(std::uint32_t peer) noexcept;
  /// Lets Linux move this rank to an idle processor.
  void part() noexcept;
  /// Whether the peer has published `round`; sets `differs` if its call is another one.
  [[nodiscard]] bool has_come(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept;

  NodeGroup place_;
  Line* lines_;
  std::byte* shorts_;
  std::byte* stages_;
  std::size_t slot_bytes_;
  std::size_t slot_stride_;
  std::uint32_t last_line_;  ///< number of each rank's lines in use, a power of two, minus one
  bool oversubscribed_;
  bool is_mapped_ = false;  ///< the part of the slots in which contributions take turns
  std::uint32_t round_ = 0;
  std::uint32_t first_of_call_ = 1;
  std::uint32_t signature_ = 0;
  std::uint32_t last_position_ = 0;   ///< number of positions in a slot, a power of two, minus one
  std::uint32_t position_shift_ = 0;  ///< a position has 1 << this bytes
  bool trades_ = false;               ///< as trade_slots() says
  bool is_trading_ = false;           ///< in the present layout
  std::uint32_t layout_ = 0;          ///< of the last round: position_shift_, or 0 if a slot is one position
  std::uint32_t layout_since_ = 0;    ///< the first round of this layout
  calls::Watchdog* watchdog_ = nullptr;
  TimedPauses pauses_;
  std::vector<std::uint32_t> seen_;  // by peer: the last round known to be published
  // Of waits that are not short:
  Waiting* waiting_;
  std::chrono::nanoseconds longest_sleep_ = std::chrono::milliseconds(1);
  int own_processor_ = -1;          ///< as published
  Clock::time_point next_parting_;  ///< initially in the past
  ProcessorContention contention_;
  ProcessorContention unawaited_contention_;
};

}  // namespace amldist::collective
