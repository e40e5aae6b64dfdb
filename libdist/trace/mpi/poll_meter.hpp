// Whether a thread waits by polling: MPI_Test in a loop, with nothing between two tests that takes time.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time/tick_clock.hpp"

namespace amldist::trace::mpi {

/// Looks at intervals of a fifth of a second. In such an interval the program waits if it made no other call, no test
/// found anything, and the process slept or spent its time on the tests. A program that computes between two tests does
/// not wait. For one thread.
class PollMeter {
 public:
  enum class Finding { not_due, busy, waits };

  /// Called after a test that found nothing; costs a reading of the kernel's coarse clock. `calls`: of the program so
  /// far. After any other answer than not_due, call begin_interval().
  [[nodiscard]] Finding found_nothing(std::uint64_t calls) noexcept {
    ++tests_;
    const std::uint64_t now = coarse_ns();
    return now - begin_ns_ < interval_ns ? Finding::not_due : judge(now, calls);
  }
  void found_something() noexcept { has_found_ = true; }
  void begin_interval(std::uint64_t calls) noexcept;
  /// When the interval began, in ticks of TickClock.
  [[nodiscard]] std::uint64_t begin_ticks() const noexcept { return begin_ticks_; }

 private:
  static constexpr std::uint64_t interval_ns = 200'000'000;
  [[nodiscard]] Finding judge(std::uint64_t now, std::uint64_t calls) const noexcept;
  [[nodiscard]] static std::uint64_t coarse_ns() noexcept;

  TickClock clock_;
  std::uint64_t tests_ = 0;
  std::uint64_t begin_ns_ = 0;
  bool has_found_ = false;
  std::uint64_t calls_ = 0;
  std::uint64_t begin_ticks_ = 0;
  std::uint64_t thread_cpu_ns_ = 0;         ///< at its beginning
  std::uint64_t process_cpu_ns_ = 0;        ///< at its beginning
  std::optional<std::uint64_t> queued_ns_;  ///< of the thread on a run queue, at its beginning
};

}  // namespace amldist::trace::mpi
