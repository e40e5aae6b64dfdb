#include "collective/node/channel/slot_channel.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/memory/shared_futex.hpp"
#include "collective/node/memory/peer_memory.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t page_bytes = 4096;
/// A larger slot has no room for turns.
constexpr std::uint32_t most_ranks_rotating = tuning::most_rotation / (SlotChannel::slots * tuning::shortest_rotation);

std::size_t whole_pages(std::size_t bytes) noexcept { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

/// The ranks' lines, followed by what they publish about their waiting.
std::size_t lines_bytes(std::uint32_t ranks) noexcept {
  return whole_pages(static_cast<std::size_t>(ranks) * (SlotChannel::lines_oversubscribed + 1) * 64);
}

/// Sleeps no longer than asked: Linux adds 50 us by default.
void nap(std::chrono::nanoseconds length) noexcept {
  const int slack = ::prctl(PR_GET_TIMERSLACK);
  static_cast<void>(::prctl(PR_SET_TIMERSLACK, 1));
  std::this_thread::sleep_for(length);
  if (slack > 0) static_cast<void>(::prctl(PR_SET_TIMERSLACK, slack));
}

}  // namespace

std::size_t SlotChannel::memory_bytes(std::uint32_t ranks, std::size_t slot_bytes) noexcept {
  return lines_bytes(ranks) + whole_pages(ranks * lines_oversubscribed * short_stride) +
         ranks * slots * slot_stride(ranks, slot_bytes);
}

SlotChannel::SlotChannel(std::byte* memory, NodeGroup place, std::size_t slot_bytes, bool oversubscribed)
    : place_(std::move(place)),
      lines_(reinterpret_cast<Line*>(memory)),
      shorts_(memory + lines_bytes(place_.size)),
      stages_(shorts_ + whole_pages(place_.size * lines_oversubscribed * short_stride)),
      slot_bytes_(slot_bytes),
      slot_stride_(slot_stride(place_.size, slot_bytes)),
      last_line_(static_cast<std::uint32_t>(oversubscribed ? lines_oversubscribed : lines) - 1),
      oversubscribed_(oversubscribed),
      seen_(place_.size, 0),
      waiting_(reinterpret_cast<Waiting*>(lines_ + static_cast<std::size_t>(place_.size) * lines_oversubscribed)),
      contention_(place_.size),
      unawaited_contention_(place_.size) {}

Error SlotChannel::has_bad_buffer(std::uint32_t peer, std::size_t bytes, std::string_view why) const {
  return bad_buffer_of(place_.communicator_ranks[peer], place_.host, bytes, why);
}

bool SlotChannel::has_come(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept {
  const std::uint64_t word = line(peer, round).word.load(std::memory_order_acquire);
  const auto shown = static_cast<std::uint32_t>(word >> 32);
  if (static_cast<std::int32_t>(shown - round) < 0) return false;
  const bool of_this_call = static_cast<std::int32_t>(round - first_of_call_) >= 0;
  differs = of_this_call && word != word_of(round);
  seen_[peer] = round;
  return true;
}

void SlotChannel::use_slots(std::size_t bytes, std::size_t buffers, Flow flow) noexcept {
  const std::size_t position = std::bit_ceil(std::max<std::size_t>(bytes, 1));
  is_trading_ = trades_;
  const std::size_t longest = rotation_for(buffers);
  const std::size_t region = trades_ ? std::min(longest, tuning::shortest_rotation) : longest;
  // Ranks that share a processor find in its cache what they have just written: they gain only from running ahead.
  const bool gains = place_.size <= most_ranks_rotating && (!oversubscribed_ || flow == Flow::one_way);
  const std::size_t shortest = oversubscribed_ ? page_bytes : 2 * page_bytes;  // shorter ones are as fast without
  const bool rotates = gains && position >= shortest && position < region;
  if (rotates && !is_mapped_) map_rotation();
  last_position_ = rotates ? static_cast<std::uint32_t>(region / position - 1) : 0;
  position_shift_ = static_cast<std::uint32_t>(std::countr_zero(position));
}

std::size_t SlotChannel::rotation(std::uint32_t ranks, std::size_t slot_bytes, bool oversubscribed) noexcept {
  if (slot_bytes < tuning::shortest_rotation) return std::bit_floor(slot_bytes);
  const std::size_t share = std::bit_floor(tuning::most_rotation / slots / ranks);
  return oversubscribed ? tuning::shortest_rotation
                        : std::clamp(share, tuning::shortest_rotation, tuning::longest_rotation);
}

std::size_t SlotChannel::rotation_for(std::size_t buffers) const noexcept {
  const std::size_t most = rotation(place_.size, slot_bytes_, oversubscribed_);
  return buffers <= tuning::most_rotating_buffers ? most : std::min(most, tuning::shortest_rotation);
}

/// Maps everything at once, instead of by a page fault for each page of the first calls. If the kernel cannot (before
/// Linux 5.14), page faults do it. All ranks do so in the same call; those that share this one's processor take their
/// turns meanwhile.
void SlotChannel::map_rotation() noexcept {
  is_mapped_ = true;
  pauses_.wait_otherwise();
  const auto begun = Clock::now();
  const std::size_t each = rotation(place_.size, slot_bytes_, oversubscribed_) / page_bytes * page_bytes;
  const std::size_t all = slots * place_.size;
  for (std::size_t i = 0; i < all; ++i) {
    const std::size_t slot = (slots * place_.rank + i) % all;  // the own slots first, while the others map theirs
    static_cast<void>(::madvise(stages_ + slot * slot_stride_, each, MADV_POPULATE_WRITE));
  }
  const auto now = Clock::now();
  constexpr Clock::duration longest_expected = std::chrono::milliseconds(100);
  const auto all_have_mapped = now + std::min((now - begun) * place_.size, longest_expected);
  contention_.expect_long_yields_until(all_have_mapped);
  unawaited_contention_.expect_long_yields_until(all_have_mapped);
}

void SlotChannel::delay_polling(std::size_t bytes) const noexcept {
  constexpr std::size_t bytes_in_a_pause = 2048;
  if (oversubscribed_) return;
  for (std::size_t i = 0; i < bytes / bytes_in_a_pause; ++i) relax();
}

Result<void> SlotChannel::wait_until(std::uint32_t peer, std::uint32_t round) {
  bool differs = false;
  const int spins = oversubscribed_ ? 4 : 128;
  for (int spin = 0; spin < spins; ++spin) {
    if (has_come(peer, round, differs)) {
      if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
      return {};
    }
    pauses_.pause();
  }
  pauses_.wait_otherwise();
  if (oversubscribed_ || !spin_apart(peer, round, differs)) return wait_slowly(peer, round);
  if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
  return {};
}

/// Spinning is useless if the peer waits for this rank's processor, or other programs want it.
bool SlotChannel::spin_apart(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept {
  constexpr int polls = 2048;  // 50 us
  if (!is_apart(peer)) {
    part();
    return false;
  }
  if (contention().was_contended() && contention().is_contended(Clock::now())) return false;
  for (int poll = 0; poll < polls; ++poll) {
    if (has_come(peer, round, differs)) return true;
    relax();
  }
  return false;
}

bool SlotChannel::is_apart(std::uint32_t peer) noexcept {
  const int processor = ::sched_getcpu();
  if (own_processor_ != processor) {
    own_processor_ = processor;
    waiting_[place_.rank].processor.store(processor + 1, std::memory_order_relaxed);
  }
  return waiting_[peer].processor.load(std::memory_order_relaxed) != processor + 1;
}

/// Ranks that share a processor and keep handing it to each other would stay there, at 2 us instead of 0.1 us for the
/// smallest call, although another processor is idle: Linux does not migrate a process that ran within the last half
/// millisecond, and balances only every few milliseconds. But it wakes a sleeper on an idle processor, if there is one.
void SlotChannel::part() noexcept {
  constexpr auto between_attempts = std::chrono::milliseconds(1);
  const auto now = Clock::now();
  if (now < next_parting_) return;
  next_parting_ = now + between_attempts;
  nap(std::chrono::microseconds(1));
}

/// Yields the processor, and after a while sleeps until the peer publishes. Ranks that outnumber the processors sleep
/// soon: a processor on which a rank keeps yielding is not idle, so Linux brings no other rank there. A yield to
/// another program takes a slice of its time, some milliseconds, whereas ranks yield back at once. So if yields take
/// long, sleep replaces them for a while: Linux prefers a thread that has slept to one that computes.
Result<void> SlotChannel::wait_slowly(std::uint32_t peer, std::uint32_t round) {
  // If many ranks wait for a processor, each yield takes a turn of all of them: with 64, seconds passed in which no
  // diagnosis was received.
  constexpr int yields_between_checks = 4;
  const int checks_before_sleep = oversubscribed_ ? 16 : 1024;
  auto before = Clock::now();
  bool contended = contention().is_contended(before);
  for (int check = 0;; ++check) {
    for (int i = 0; i < yields_between_checks; ++i) {
      bool differs = false;
      if (has_come(peer, round, differs)) {
        if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
        return {};
      }
      if (contended || check >= checks_before_sleep) {
        sleep(peer, round);
        break;
      }
      static_cast<void>(::sched_yield());
      const auto now = Clock::now();
      contended = contention().yielded(now, now - before);
      before = now;
    }
    if (auto status = watchdog_->keep_waiting(place_.communicator_ranks[peer]); !status) return status;
    before = Clock::now();
    contended = contention().is_contended(before);
  }
}

void SlotChannel::sleep(std::uint32_t peer, std::uint32_t round) noexcept {
  auto& sleepers = waiting_[peer].sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t word = line(peer, round).word.load(std::memory_order_acquire);
  const auto shown = static_cast<std::uint32_t>(word >> 32);
  if (static_cast<std::int32_t>(shown - round) < 0) sleep_while(round_in(line(peer, round)), shown, longest_sleep_);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void SlotChannel::wake_up() noexcept { static_cast<void>(wake_sleepers(round_in(line(place_.rank, round_)))); }

}  // namespace amldist::collective
