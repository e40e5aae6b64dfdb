// Which nodes write to each other over RDMA before a step's tasks start, and in which round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/option/spec.hpp"

namespace amldist::fabric {

/// One node's part of a round: the node that it writes to, and the node that writes to it. nullopt: no node.
struct PairRound {
  std::optional<std::uint32_t> to;
  std::optional<std::uint32_t> from;

  friend bool operator==(const PairRound&, const PairRound&) = default;
};

/// The largest step in which every node writes to every other: for larger ones `all` is treated as `log`.
inline constexpr std::uint32_t most_nodes_of_all_pairs = 128;

/// The rounds of `node`, equally many on all nodes:
///   ring   1: to the next node, from the one before
///   log    ceil(log2 N), of disjoint pairs: with the node whose number differs in bit K. A node whose partner does not
///          exist rests in that round; none rests in all.
///   all    N - 1 (N if N is odd), of disjoint pairs: every two nodes meet once
/// None for `off`, and for a single node.
[[nodiscard]] std::vector<PairRound> pair_rounds(launch::RdmaPairs pairs, std::uint32_t node, std::uint32_t nodes);

/// All nodes with which `node` is paired, each once, in the order of the rounds.
[[nodiscard]] std::vector<std::uint32_t> peers_of(const std::vector<PairRound>& rounds);

/// For each of `own` rails the index of the rail of `other`, the node's peer, with which it is paired; nullopt if no
/// rail is left. Two nodes with equally many rails go by their order, as NCCL does: names may differ between nodes of
/// one kind. If one has fewer, rails of the same name are paired first, so that a lost device does not shift all after
/// it, and the rest by order. Both ends get the same pairs.
[[nodiscard]] std::vector<std::optional<std::size_t>> match_rails(const std::vector<std::string>& own,
                                                                  const std::vector<std::string>& other);

}  // namespace amldist::fabric
