// Which ranks of a node lead others: those that share a last-level cache have a leader, and where there are many caches
// on several sockets, a socket's leaders have one, too. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/os/processor_place.hpp"

namespace amldist::collective {

/// What a rank of a node tells the others about its processors.
struct NodePlace {
  ProcessorPlace processors;  ///< what those that it may use have in common
  bool is_given = false;      ///< by AMLDIST_NODE_DOMAINS: leaders are used whether or not that is faster
};

/// From the innermost: groups of all ranks, groups of those groups' leaders, and so on; the last level has one group. A
/// group's ranks ascend, and the first one leads it. Empty: no leaders.
using NodeLevels = std::vector<std::vector<std::vector<std::uint32_t>>>;

struct NodeDivision {
  NodeLevels levels;
  std::string text;  ///< for people: "4 cache domains, leaders"; empty: there is nothing to say
};

/// By rank on the node; the same on all ranks. `oversubscribed`: ranks share processors; then each wait costs more than
/// lines that cross.
[[nodiscard]] NodeDivision divide_node(std::span<const NodePlace> places, bool oversubscribed);

}  // namespace amldist::collective
