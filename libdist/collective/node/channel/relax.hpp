// Processor hints for ranks that exchange cache lines.
#pragma once

#include <cstddef>
#include <thread>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace amldist::collective {

/// Waits briefly between two polls.
inline void relax() noexcept {
#ifdef __SSE2__
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// A shorter wait, for the first polls of a wait that may end at any moment. A pause takes 23 ns on the processor where
/// this was measured, nearly as long as a cache line takes to arrive. Polling without any pause would keep taking the
/// line away from its writer. Reading the time-stamp counter takes 9 ns, or 25 in a virtual machine.
inline void relax_briefly() noexcept {
#ifdef __x86_64__
  static_cast<void>(__rdtsc());
#else
  relax();
#endif
}

/// Requests a cache line that will be read soon.
inline void prefetch_for_reading(const void* line) noexcept { __builtin_prefetch(line); }

/// Requests a cache line for writing ahead of time, while this rank waits for others. If a reader has it in its cache,
/// a store would have to wait until that copy is invalidated.
inline void prefetch_for_write(void* line) noexcept {
#ifdef __x86_64__
  // __builtin_prefetch() prefetches for reading unless the whole program is compiled for processors with prefetchw.
  // Older processors treat prefetchw as a no-op.
  asm volatile("prefetchw (%0)" : : "r"(line));
#else
  __builtin_prefetch(line, 1);
#endif
}

/// Bytes whose lines a processor gets without help while it copies, or that were prefetched before.
inline constexpr std::size_t few_lines = 320;

/// Prefetches memory that is about to be written by a copy, and that another rank has read. Otherwise the stores get
/// its cache lines one after the other, as far as the processor looks ahead. Does nothing for up to 320 bytes, or for
/// more than 8 KiB, with which copies took longer.
inline void prefetch_for_copy(std::byte* to, std::size_t bytes) noexcept {
  constexpr std::size_t line = 64;
  constexpr std::size_t most = 8UL << 10;
  if (bytes <= few_lines || bytes > most) return;
  for (std::size_t i = 0; i < bytes; i += line) prefetch_for_write(to + i);
}

}  // namespace amldist::collective
