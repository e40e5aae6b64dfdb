// The cheapest clock available: the processor's counter, or the kernel's clock if the counter is not reliable.
#pragma once

#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace amldist {

/// Ticks of unknown length, shared by all processes of a node. Reading takes about 10 ns, the kernel's clock about 20.
class TickClock {
 public:
  [[nodiscard]] std::uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (counter_) return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t ticks = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
    return monotonic_ns();
  }

  [[nodiscard]] static std::uint64_t monotonic_ns() noexcept { return read(CLOCK_MONOTONIC); }
  [[nodiscard]] static std::uint64_t realtime_ns() noexcept { return read(CLOCK_REALTIME); }

 private:
  /// Not inlined: where the counter is read, this is not called.
  [[gnu::noinline]] static std::uint64_t read(clockid_t clock) noexcept {
    timespec time = {};
    ::clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
  }

#if defined(__x86_64__)
  /// Whether the counter runs evenly at any frequency and in sleep ("invariant TSC").
  static bool counter_is_even() noexcept {
    constexpr unsigned leaf = 0x80000007;
    constexpr unsigned invariant = 1U << 8;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(leaf, &a, &b, &c, &d) != 0 && (d & invariant) != 0;
  }
  bool counter_ = counter_is_even();
#endif
};

}  // namespace amldist
