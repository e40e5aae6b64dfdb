// SlotChannel: how the processes of one node work in step over shared memory. Every collective of a node is a sequence
// of them.
//
// In round k every rank publishes its line of that round: one cache line with the round's number, the signature of the
// call it belongs to, and 56 bytes of data. Whoever needs a rank's contribution waits for its line. Larger
// contributions lie in the rank's stage, which has four slots, one for each of four consecutive rounds, as there are
// four lines.
//
//   rank 0  line[k%4]  k | signature | data       stage[k%4]  up to slot_bytes()
//   rank 1  ...
//
// Why four are enough: a rank writes into the slot of round k after it has seen every other rank's line of round k-2
// (begin() waits for that). A rank publishes round k-2 only after it has finished reading rounds up to k-4: rule 1,
// which is the caller's to keep: when round j is published, nothing of a round before j-1 is still to be read.
//
// As the line carries the signature, a rank that makes another call is noticed at once, at no cost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/calls/watchdog.hpp"
#include "collective/node/relax.hpp"
#include "collective/node/shared_memory.hpp"

namespace amldist::collective {

/// Place in the group of one node's ranks.
struct NodeGroup {
  std::uint32_t rank = 0;               ///< within the node
  std::uint32_t size = 1;               ///< ranks of the communicator on this node
  std::vector<int> communicator_ranks;  ///< of each, for the watchdog
};

class SlotChannel {
 public:
  static constexpr std::size_t line_data = 56;
  static constexpr std::size_t slots = 4;

  /// Bytes of shared memory for `ranks` with slots of `slot_bytes` each.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t ranks, std::size_t slot_bytes) noexcept;
  /// `memory` is zeroed at first and outlives this object.
  SlotChannel(std::byte* memory, NodeGroup place, std::size_t slot_bytes, bool oversubscribed);

  [[nodiscard]] std::uint32_t rank() const noexcept { return place_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return place_.size; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] const NodeGroup& place() const noexcept { return place_; }
  /// Whether the node has more ranks than processors: then a wait hands the processor on at once.
  [[nodiscard]] bool is_oversubscribed() const noexcept { return oversubscribed_; }

  /// Begins a call: its rounds carry this signature.
  void begin_call(std::uint32_t signature) noexcept {
    signature_ = signature;
    first_of_call_ = round_ + 1;
  }
  /// Waiting is under this watchdog from now on.
  void wait_under(Watchdog& watchdog) noexcept { watchdog_ = &watchdog; }

  /// Begins the next round: afterwards own_slot() and own_line() may be written.
  [[nodiscard]] Result<void> begin() {
    const std::uint32_t wanted = round_ - 1;  // the line of round_+1-2
    if (round_ < 2) return advance();
    for (std::uint32_t peer = 0; peer < place_.size; ++peer) {
      if (static_cast<std::int32_t>(seen_[peer] - wanted) >= 0) continue;
      if (auto came = wait_until(peer, wanted); !came) return came;
    }
    return advance();
  }
  /// The same where no rank has to be waited for; false, and nothing begun, where one would.
  [[nodiscard]] bool begin_at_once() noexcept {
    for (const std::uint32_t seen : seen_) {
      if (static_cast<std::int32_t>(seen - (round_ - 1)) < 0) return false;
    }
    ++round_;
    return true;
  }
  /// Ends own writing of the current round.
  void publish() noexcept {
    line(place_.rank, round_).word.store(word_of(round_), std::memory_order_release);
    seen_[place_.rank] = round_;
  }
  /// After publish(), where the next round is likely to be the next thing that is written: makes that faster. Nobody
  /// looks at that line any more. (Behind slots it makes calls slower: the slots' lines are on their way then.)
  void claim_next_line() noexcept { claim(&line(place_.rank, round_ + 1)); }
  /// Waits for a rank's line of round current()-`back`, 0 or 1.
  [[nodiscard]] Result<void> await(std::uint32_t peer, std::uint32_t back = 0) {
    const std::uint32_t wanted = round_ - back;
    if (static_cast<std::int32_t>(seen_[peer] - wanted) >= 0) return {};
    return wait_until(peer, wanted);
  }
  /// Before waiting for lines behind which so many bytes lie in slots. To look at a line takes it from its writer, who
  /// must get it back to publish; so nobody looks before the bytes can have left the writer's processor.
  void rest(std::size_t bytes) const noexcept;
  [[nodiscard]] Result<void> await_all(std::uint32_t back = 0) {
    std::uint32_t peer = place_.rank;  // the next one first, so that not all look at the same line
    for (std::uint32_t i = 1; i < place_.size; ++i) {
      peer = peer + 1 == place_.size ? 0 : peer + 1;
      if (auto came = await(peer, back); !came) return came;
    }
    return {};
  }

  /// What the peer published is not what this rank's call expects of it; ends the call.
  [[nodiscard]] Error differs(std::uint32_t peer) { return watchdog_->differs(place_.communicator_ranks[peer]); }

  [[nodiscard]] std::byte* own_line() noexcept { return line(place_.rank, round_).data; }
  [[nodiscard]] std::byte* line_of(std::uint32_t peer, std::uint32_t back = 0) noexcept {
    return line(peer, round_ - back).data;
  }
  /// From what one rank shows in its line, or slot, to what the next one does.
  [[nodiscard]] static constexpr std::size_t between_lines() noexcept { return slots * sizeof(Line); }
  [[nodiscard]] std::size_t between_slots() const noexcept { return slots * slot_bytes_; }
  [[nodiscard]] std::byte* own_slot() noexcept { return slot_of(place_.rank); }
  [[nodiscard]] std::byte* slot_of(std::uint32_t peer, std::uint32_t back = 0) noexcept {
    return stages_ + (static_cast<std::size_t>(peer) * slots + (round_ - back) % slots) * slot_bytes_;
  }

 private:
  struct alignas(64) Line {
    std::atomic<std::uint64_t> word;  // round << 32 | signature
    std::byte data[line_data];
  };
  static_assert(sizeof(Line) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

  [[nodiscard]] Line& line(std::uint32_t peer, std::uint32_t round) noexcept {
    return lines_[static_cast<std::size_t>(peer) * slots + round % slots];
  }
  [[nodiscard]] std::uint64_t word_of(std::uint32_t round) const noexcept {
    return static_cast<std::uint64_t>(round) << 32 | signature_;
  }
  [[nodiscard]] Result<void> advance() noexcept {
    ++round_;
    return {};
  }
  [[nodiscard]] Result<void> wait_until(std::uint32_t peer, std::uint32_t round);
  [[nodiscard]] Result<void> wait_slowly(std::uint32_t peer, std::uint32_t round);
  /// Whether the line came while this rank kept its processor.
  [[nodiscard]] bool spin_long(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept;
  /// Whether the peer's line shows `round`; sets `differs` where its call is another one.
  [[nodiscard]] bool has_come(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept;

  NodeGroup place_;
  Line* lines_;
  std::byte* stages_;
  std::size_t slot_bytes_;
  bool oversubscribed_;
  std::uint32_t round_ = 0;
  std::uint32_t first_of_call_ = 1;
  std::uint32_t signature_ = 0;
  Watchdog* watchdog_ = nullptr;
  Clock::time_point next_long_spin_;  ///< the first at once
  std::vector<std::uint32_t> seen_;   // by peer: the last round known to be published
};

}  // namespace amldist::collective
