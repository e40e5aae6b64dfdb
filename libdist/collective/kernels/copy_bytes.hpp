// A copy that may be empty, or from a buffer to itself.
#pragma once

#include <cstddef>
#include <cstring>

namespace amldist::collective {

/// memcpy(3) must not get a null pointer, even for length 0, but an empty buffer may be null.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace amldist::collective
