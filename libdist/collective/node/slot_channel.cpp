#include "collective/node/slot_channel.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace amldist::collective {
namespace {

constexpr std::size_t page_bytes = 4096;

std::size_t lines_bytes(std::uint32_t ranks) noexcept {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * SlotChannel::slots * 64;
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
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
      seen_(place_.size, 0) {}

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
  if (oversubscribed_ || !spin_long(peer, round, differs)) return wait_slowly(peer, round);
  if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
  return {};
}

/// Ranks that start on one processor and keep handing it to each other would stay there, at 3 us instead of 0.1 us for
/// the smallest call, although another processor is idle: Linux does not migrate a process that ran within the last
/// half millisecond, and balances only every few milliseconds. So from time to time a rank keeps the processor for that
/// long.
bool SlotChannel::spin_long(std::uint32_t peer, std::uint32_t round, bool& differs) noexcept {
  constexpr auto long_enough = std::chrono::milliseconds(5);
  constexpr auto pause = std::chrono::milliseconds(20);
  constexpr auto at_once = std::chrono::microseconds(100);
  constexpr int polls_between_clock_reads = 256;
  const auto start = Clock::now();
  if (start < next_long_spin_) return false;
  bool came = false;
  do {
    for (int poll = 0; poll < polls_between_clock_reads && !came; ++poll) {
      came = has_come(peer, round, differs);
      if (!came) relax();
    }
  } while (!came && Clock::now() - start < long_enough);
  // A peer that arrives soon while this rank keeps its processor must have another one.
  const auto end = Clock::now();
  next_long_spin_ = end - start < at_once ? end : end + pause;
  return came;
}

/// Yields the processor; after about a millisecond sleeps in growing naps. No process needs to be woken, so publishing
/// stays cheap.
Result<void> SlotChannel::wait_slowly(std::uint32_t peer, std::uint32_t round) {
  constexpr int yields_between_checks = 8;  // on a busy machine each may take as long as a time slice of every other
  constexpr int checks_before_naps = 512;
  constexpr auto longest_nap = std::chrono::microseconds(500);
  auto nap = std::chrono::microseconds(20);
  for (int poll = 0;; ++poll) {
    for (int i = 0; i < yields_between_checks; ++i) {
      bool differs = false;
      if (has_come(peer, round, differs)) {
        if (differs) return watchdog_->differs(place_.communicator_ranks[peer]);
        return {};
      }
      if (poll < checks_before_naps) {
        static_cast<void>(::sched_yield());
      } else {
        std::this_thread::sleep_for(nap);
        nap = std::min(nap * 2, longest_nap);
        break;
      }
    }
    if (auto going_on = watchdog_->keep_waiting(place_.communicator_ranks[peer]); !going_on) return going_on;
  }
}

}  // namespace amldist::collective
