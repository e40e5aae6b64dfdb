// A clock for a source that may make millions of calls per second. Reading the processor's counter is most of the cost
// of recording a short call, in a virtual machine above all; the kernel's coarse clock costs a third of it.
#pragma once

#include <cstdint>
#include <ctime>

#include "base/time/tick_clock.hpp"

namespace amldist {

/// Reads TickClock exactly, unless that was done a thousand times in the present tick of the kernel (1 to 10 ms,
/// depending on its configuration). From then on, until the kernel's next tick, it repeats the last exact reading. For
/// one thread at a time.
class BurstClock {
 public:
  /// The present moment in ticks of TickClock; may be too early, never too late.
  [[nodiscard]] std::uint64_t now() noexcept {
    is_exact_ = exact_left_ > 0 || begins_tick();
    if (is_exact_) {
      --exact_left_;
      latest_ = clock_.now();
    }
    return latest_;
  }
  /// For a call that takes long enough to be worth an exact reading.
  [[nodiscard]] std::uint64_t read_exactly() noexcept {
    is_exact_ = true;
    return latest_ = clock_.now();
  }
  /// Whether the last reading was exact.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  [[nodiscard]] std::uint64_t latest() const noexcept { return latest_; }  ///< the last reading
  /// The same if it was exact, else an exact reading.
  [[nodiscard]] std::uint64_t exactly() noexcept { return is_exact_ ? latest_ : read_exactly(); }
  /// TickClock showed this after the last reading: what is inexact need not be earlier.
  void note(std::uint64_t later) noexcept { latest_ = later; }

  struct End {
    std::uint64_t ticks;  ///< the reading at the end
    bool in_next_tick;    ///< the call that began at the last, inexact reading may have begun just now
  };
  /// The end of a call that began with the last reading, which was not exact. Within the same tick of the kernel that
  /// is the reading itself; after it the end is exact.
  [[nodiscard]] End end_of_inexact() noexcept {
    const std::uint64_t before = tick_ns_;
    if (!begins_tick()) return {latest_, false};
    const bool next = tick_ns_ - before < resolution_ns_ + resolution_ns_ / 2;
    return {latest_ = clock_.now(), next};
  }

 private:
  static constexpr unsigned exact_readings = 1024;  // of 10 to 25 ns each

  /// Whether the kernel's clock has advanced since this was last asked.
  [[nodiscard]] bool begins_tick() noexcept {
    const std::uint64_t tick = kernel_ns();
    if (tick == tick_ns_) return false;
    tick_ns_ = tick;
    exact_left_ = exact_readings;
    return true;
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

}  // namespace amldist
