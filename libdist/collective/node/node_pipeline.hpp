// The pipeline of most node collectives. Internal to node_*.cpp.
#pragma once

#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

template <typename Stage, typename Consume>
Result<void> NodeCollectives::pipeline(std::size_t pieces, Stage stage, Consume consume) {
  for (std::size_t staged = 0, i = 0; i < pieces; ++i) {
    while (staged < pieces && staged < i + 2) {  // one piece ahead
      if (auto begun = slot_channel_.begin(); !begun) return begun;
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
