// Where the rings and the blocks of a node's ranks are in their shared memory: the rings of all ordered pairs, then the
// blocks of all pairs. A rank with itself counts as a pair, whose memory nobody uses.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collective/node/channel/message_blocks.hpp"
#include "collective/node/channel/message_ring.hpp"

namespace amldist::collective {

class MessageMemory {
 public:
  /// For `ranks` of a node: 160 to 512 KiB per ordered pair. Only pairs that communicate use physical pages, and of
  /// these only pairs with long messages more than their rings.
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t ranks) noexcept {
    return bytes_of_rings(ranks) + pairs_of(ranks) * MessageBlocks::bytes_of(ranks);
  }
  /// `memory`: zeroed at first, and aligned to a cache line.
  MessageMemory(std::byte* memory, std::size_t ranks) noexcept : memory_(memory), ranks_(ranks) {}

  [[nodiscard]] MessageRing& ring(std::size_t sender, std::size_t receiver) const noexcept {
    return *reinterpret_cast<MessageRing*>(memory_ + (sender * ranks_ + receiver) * MessageRing::bytes_of(ranks_));
  }
  [[nodiscard]] MessageBlocks& blocks(std::size_t one, std::size_t other) const noexcept {
    const auto [low, high] = std::minmax(one, other);
    const std::size_t pair = pairs_of(high) + low;
    return *reinterpret_cast<MessageBlocks*>(memory_ + bytes_of_rings(ranks_) + pair * MessageBlocks::bytes_of(ranks_));
  }

 private:
  [[nodiscard]] static constexpr std::size_t bytes_of_rings(std::size_t ranks) noexcept {
    return ranks * ranks * MessageRing::bytes_of(ranks);
  }
  /// Among the first `ranks`.
  [[nodiscard]] static constexpr std::size_t pairs_of(std::size_t ranks) noexcept { return ranks * (ranks + 1) / 2; }

  std::byte* memory_;
  std::size_t ranks_;
};

}  // namespace amldist::collective
