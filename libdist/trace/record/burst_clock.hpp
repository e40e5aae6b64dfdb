// A clock for a source that makes calls one at a time, perhaps millions per second. Reading the processor's counter is
// most of the cost of recording a short call; the kernel's coarse clock costs a third of it.
#pragma once

#include <cstdint>
#include <ctime>

#include "base/time/tick_clock.hpp"

namespace amldist::trace {

/// Reads TickClock exactly for the first thousand readings in each tick of the kernel (1 to 10 ms, depending on its
/// configuration). After that, until the kernel's next tick, it repeats the last exact reading. For one thread at a
/// time.
class BurstClock {
 public:
  /// The present moment in ticks of TickClock; may be too early, never too late.
  [[nodiscard]] std::uint64_t now() noexcept {
    const std::uint64_t tick = kernel_ns();
    if (tick != tick_ns_) begin_tick(tick);
    is_exact_ = exact_left_ > 0;
    if (is_exact_) {
      --exact_left_;
      latest_ = clock_.now();
    }
    return latest_;
  }
  /// Whether the last result of now() was exact.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }

  struct End {
    std::uint64_t ticks;  ///< the reading at the end
    bool in_next_tick;    ///< the call that began at the last, inexact reading may have begun just now
  };
  /// The end of a call that began with the last reading, which was not exact. Within the same tick of the kernel that
  /// is the reading itself; after it the end is exact.
  [[nodiscard]] End end_of_inexact() noexcept {
    const std::uint64_t tick = kernel_ns();
    if (tick == tick_ns_) return {latest_, false};
    const bool next = tick - tick_ns_ < resolution_ns_ + resolution_ns_ / 2;
    begin_tick(tick);
    return {latest_ = clock_.now(), next};
  }

 private:
  static constexpr unsigned exact_readings = 1024;  // of 10 ns: a fraction of a per cent of the time for any program

  void begin_tick(std::uint64_t tick) noexcept {
    tick_ns_ = tick;
    exact_left_ = exact_readings;
  }
  static std::uint64_t number(const timespec& time) noexcept {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
  }
  static std::uint64_t kernel_ns() noexcept {
    timespec time = {};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return number(time);
  }
  static std::uint64_t resolution() noexcept {
    timespec time = {};
    ::clock_getres(CLOCK_MONOTONIC_COARSE, &time);
    return number(time);
  }

  TickClock clock_;
  std::uint64_t resolution_ns_ = resolution();
  std::uint64_t tick_ns_ = 0;
  std::uint64_t latest_ = 0;
  unsigned exact_left_ = 0;
  bool is_exact_ = true;
};

}  // namespace amldist::trace
