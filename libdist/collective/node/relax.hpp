// What ranks ask of the processor while they hand lines of memory to each other.
#pragma once

#include <thread>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace amldist::collective {

/// After a look in vain, before the next one.
inline void relax() noexcept {
#ifdef __SSE2__
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// The same for the first looks of a wait that may end at any moment. A pause takes 23 ns on the processor that this
/// was measured on, nearly as long as a line's way; no pause at all keeps taking the line from its writer. Reading the
/// counter takes 9 ns.
inline void relax_briefly() noexcept {
#ifdef __x86_64__
  static_cast<void>(__rdtsc());
#else
  relax();
#endif
}

/// Asks for a line that this rank writes next, while it waits for others: it lies in a reader's cache, and a store
/// would have to wait until that copy is gone.
inline void claim(void* line) noexcept {
#ifdef __x86_64__
  // The compiler's own prefetch only reads, unless all of the code is for processors that know this one. Those that do
  // not, do nothing.
  asm volatile("prefetchw (%0)" : : "r"(line));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace amldist::collective
