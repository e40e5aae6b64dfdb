// Copies by the processor's string instruction, "rep movsb", which writes whole cache lines.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collective/kernels/cpuid.hpp"

namespace amldist::collective {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool builds_string_copy = true;

inline void string_copy(void* to, const void* from, std::size_t bytes) noexcept {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#else  // sanitizers do not see the memory that inline assembly touches
inline constexpr bool builds_string_copy = false;

inline void string_copy(void* to, const void* from, std::size_t bytes) noexcept {
  std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(to));
}
#endif

/// Whether the processor has "enhanced rep movsb", which may be the fastest copy.
[[nodiscard]] inline bool has_string_copy() noexcept {
  constexpr unsigned leaf = 7;
  constexpr unsigned enhanced = 1U << 9;
  return builds_string_copy && (cpuid(leaf)[1] & enhanced) != 0;
}

/// Whether it is the fastest copy of some KiB ("fast short rep movsb"). Not on an EPYC of the third or fourth
/// generation (family 25), where it is slow for some distances between the two places. Asks the processor once: in a
/// virtual machine that takes microseconds, and every ring of a communicator wants to know.
[[nodiscard]] inline bool has_fast_string_copy() noexcept {
  static const bool is_fast = [] {
    constexpr unsigned leaf = 7;
    constexpr unsigned fast_short = 1U << 4;
    constexpr unsigned slow_family = 25;
    const unsigned version = cpuid(1)[0];
    const unsigned family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    return builds_string_copy && (cpuid(leaf)[3] & fast_short) != 0 && family != slow_family;
  }();
  return is_fast;
}

}  // namespace amldist::collective
