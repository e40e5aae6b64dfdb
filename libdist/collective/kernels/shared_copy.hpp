// Copies to and from memory that two ranks use in turn.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collective/kernels/string_copy.hpp"

namespace amldist::collective {

/// Whether the processor may copy these bytes twenty times as slowly as others by its string instructions, and so by
/// memcpy(3), which uses them for 4 KiB and more. On an EPYC of the third or fourth generation they wait after each
/// line if a place lies up to 31 bytes ahead of the one that it is copied from, but for whole pages. A large block of
/// malloc(3) begins 16 bytes after a page.
[[nodiscard]] inline bool is_slow_to_copy(const void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t is_long = 4096;
  constexpr std::uintptr_t page = 4096;
  const auto ahead = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % page;
  return bytes >= is_long && ahead - 1 < 31;
}

/// Copies by ordinary loads and stores. The ranges must not overlap.
inline void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    __m128i block[4];
    for (int i = 0; i < 4; ++i) block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < 4; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, block[i]);
  }
#endif
  std::copy_n(from, bytes, to);
}

/// Copies past the caches: what is written is in memory when this returns. The ranges must not overlap.
inline void copy_by_streaming(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % 16);
  std::copy_n(from, head, to);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    __m128i block[4];
    for (int i = 0; i < 4; ++i) block[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, block[i]);
  }
  _mm_sfence();
#endif
  std::copy_n(from, bytes, to);
}

/// Copies between a rank's own memory and memory that it shares. memcpy(3) chooses by the distance of the two places,
/// and moves lines that the other processor has one by one where it does not choose the string instruction: 256 KiB
/// between two cores took a tenth longer.
class SharedCopy {
 public:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    constexpr std::size_t is_long = 4096;
    if (is_slow_to_copy(to, from, bytes)) copy_by_vectors(to, from, bytes);
    else if (by_string_ && bytes >= is_long) string_copy(to, from, bytes);
    else std::copy_n(from, bytes, to);
  }

 private:
  bool by_string_ = has_fast_string_copy();
};

}  // namespace amldist::collective
