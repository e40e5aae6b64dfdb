// The tree of a world's nodes: node 0 is the root, and the others follow in order of arrival, as in a heap. Pure
// arithmetic: the path to the root follows from the index alone.
#pragma once

#include <algorithm>
#include <cstdint>

namespace amldist::world {

/// Children of a node. With 16, ten thousand nodes have four levels, and a leader has about as many children as the
/// usual machine has local ranks. Fewer would add levels, each of which adds a hop to every message; more would make
/// the leaders near the root send every message to more nodes in turn.
inline constexpr std::uint32_t tree_arity = 16;

/// The parent of a node other than the root.
[[nodiscard]] constexpr std::uint32_t tree_parent(std::uint32_t index) noexcept { return (index - 1) / tree_arity; }

/// Half-open range of a node's children, among `size` nodes.
struct TreeChildren {
  std::uint32_t first;
  std::uint32_t end;
};
[[nodiscard]] constexpr TreeChildren tree_children(std::uint32_t index, std::uint32_t size) noexcept {
  const auto at_most = [size](std::uint64_t number) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, size));
  };
  const std::uint64_t first = std::uint64_t{index} * tree_arity + 1;
  return {at_most(first), at_most(first + tree_arity)};
}

/// Levels above a node.
[[nodiscard]] constexpr std::uint32_t tree_depth(std::uint32_t index) noexcept {
  std::uint32_t depth = 0;
  for (; index != 0; index = tree_parent(index)) ++depth;
  return depth;
}

}  // namespace amldist::world
