#include "collective/node/slot_channel.hpp"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t page_bytes = 4096;

/// The ranks' lines, and behind them their places.
std::size_t lines_bytes(std::uint32_t ranks) noexcept {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * (SlotChannel::slots + 1) * 64;
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
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
  return lines_bytes(ranks) + static_cast<std::size_t>(ranks) * slots * slot_bytes;
}

SlotChannel::SlotChannel(std::byte* memory, NodeGroup place, std::size_t slot_bytes, bool oversubscribed)
    : place_(std::move(place)),
      lines_(reinterpret_cast<Line*>(memory)),
      stages_(memory + lines_bytes(place_.size)),
      slot_bytes_(slot_bytes),
      oversubscribed_(oversubscribed),
      seen_(place_.size, 0),
      waiting_(reinterpret_cast<Waiting*>(lines_ + static_cast<std::size_t>(place_.size) * slots)),
      contention_(place_.size) {}

Error SlotChannel::has_bad_buffer(std::uint32_t peer, std::size_t bytes) const {
  return {Errc::invalid_argument, text::concat({"rank ", std::to_string(place_.communicator_ranks[peer]), " (",
                                                place_.host, ") gave a buffer to send of which ", std::to_string(bytes),
                                                " bytes are not its memory (", std::strerror(EFAULT), ")"})};
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
    relax_briefly();
  }
  if (oversubscribed_ || !spin_apart(peer, round, differs)) return wait_slowly(peer, round);
  if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
  return {};
}

/// Spinning is useless where the peer waits for this rank's processor, or other programs want it.
bool SlotChannel::spin_apart(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept {
  constexpr int polls = 2048;  // 50 us
  if (!is_apart(peer)) {
    part();
    return false;
  }
  if (contention_.was_contended() && contention_.is_contended(Clock::now())) return false;
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

/// Yields the processor; after about a millisecond sleeps in growing naps. No process needs to be woken, so publishing
/// stays cheap. A yield to another program takes a slice of its time, some milliseconds; ranks yield back at once. So
/// where yields take long, naps take their place for a while: Linux prefers who has slept to who computes.
Result<void> SlotChannel::wait_slowly(std::uint32_t peer, std::uint32_t round) {
  // Where many wait for a processor, each yield takes a turn of all of them: 64 took seconds in which no verdict was
  // heard.
  constexpr int yields_between_checks = 4;
  constexpr int checks_before_naps = 1024;
  constexpr auto longest_nap = std::chrono::microseconds(500);
  constexpr auto longest_contended_nap = std::chrono::microseconds(160);
  auto length = std::chrono::microseconds(20);
  auto contended_nap = std::chrono::microseconds(10);
  auto before = Clock::now();
  bool contended = contention_.is_contended(before);
  for (int poll = 0;; ++poll) {
    for (int i = 0; i < yields_between_checks; ++i) {
      bool differs = false;
      if (has_come(peer, round, differs)) {
        if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
        return {};
      }
      if (poll >= checks_before_naps) {
        std::this_thread::sleep_for(length);
        length = std::min(length * 2, longest_nap);
        break;
      }
      if (contended) {
        nap(contended_nap);
        contended_nap = std::min(contended_nap * 2, longest_contended_nap);
        continue;
      }
      static_cast<void>(::sched_yield());
      const auto now = Clock::now();
      contended = contention_.yielded(now, now - before);
      before = now;
    }
    if (auto going_on = watchdog_->keep_waiting(place_.communicator_ranks[peer]); !going_on) return going_on;
    before = Clock::now();
  }
}

}  // namespace amldist::collective
