// The pipeline of most node collectives. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "calls/blocks.hpp"
#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

inline std::size_t pieces_of(std::size_t bytes, std::size_t piece) noexcept {
  return std::max<std::size_t>(1, (bytes + piece - 1) / piece);
}
/// Bytes in piece `i` of `bytes`.
inline std::size_t part_of(std::size_t bytes, std::size_t i, std::size_t piece) noexcept {
  return std::min(piece, bytes - std::min(bytes, i * piece));
}
inline std::size_t longest_of(const calls::Blocks& blocks, std::uint32_t ranks) {
  if (blocks.are_equal()) return blocks.count(0);
  std::size_t longest = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) longest = std::max(longest, blocks.count(r));
  return longest;
}

template <typename Stage, typename Consume>
Result<void> NodeCollectives::pipeline(std::size_t pieces, Stage stage, Consume consume) {
  for (std::size_t staged = 0, i = 0; i < pieces; ++i) {
    while (staged < pieces && staged < i + 2) {  // one piece ahead
      if (auto status = slot_channel_.begin(); !status) return status;
      stage(staged);
      slot_channel_.publish();
      ++staged;
    }
    const auto back = static_cast<std::uint32_t>(staged - 1 - i);
    const auto done = consume(i, back);
    if (!done) return done.error();
    if constexpr (requires { *done; }) {
      if (!*done) return {};
    }
  }
  return {};
}

}  // namespace amldist::collective
