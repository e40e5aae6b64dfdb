// A look in vain: what a processor does before it looks again.
#pragma once

#include <thread>
#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace amldist::collective {

inline void relax() noexcept {
#ifdef __SSE2__
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace amldist::collective
