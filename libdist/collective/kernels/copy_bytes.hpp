// A copy that may be empty, or from a buffer to itself.
#pragma once

#include <cstddef>
#include <cstring>

#include "collective/kernels/shared_copy.hpp"

namespace amldist::collective {

/// memcpy(3) must not get a null pointer, even for length 0, but an empty buffer may be null. It is slow at some
/// distances (is_slow_to_copy()).
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes == 0 || to == from) return;
  if (is_slow_to_copy(to, from, bytes)) copy_by_vectors(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace amldist::collective
