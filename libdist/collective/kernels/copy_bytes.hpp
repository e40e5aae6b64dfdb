// A copy that may be empty, and may be of what is there already.
#pragma once

#include <cstddef>
#include <cstring>

namespace amldist::collective {

/// memcpy(3) takes no null pointer, whatever the length; buffers without elements have one.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace amldist::collective
