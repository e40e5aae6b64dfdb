// The writes between the nodes of a step before its tasks start: round after round, until one fails. In each round the
// nodes exchange three texts, which the caller transports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/between_nodes/pair_schedule.hpp"
#include "fabric/between_nodes/ring_test.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// Texts of other nodes.
struct PeerTexts {
  std::map<std::uint32_t, std::string> texts;
  bool is_over = false;  ///< the step has been decided meanwhile, because a node has not passed
  std::string problem;   ///< why a text did not arrive; empty if all are there
};

/// Gives the others this node's text of a round and waits for those of `peers`. Rounds are numbered from 0.
using PeerExchange =
    std::function<PeerTexts(std::uint32_t round, const std::string& own, std::span<const std::uint32_t> peers)>;

/// Names of nodes, for evidence.
using NodeNames = std::map<std::uint32_t, std::string>;

/// "0=node1,4=node5"; malformed entries are left out.
[[nodiscard]] NodeNames node_names_from(std::string_view text);
[[nodiscard]] std::string to_text(const NodeNames& names);

/// Runs all rounds of a node, for the first of which `ring` has been opened. Returns ib.pair, or nullopt if the step
/// was decided meanwhile.
[[nodiscard]] std::optional<Check> run_launch_pairs(RingTest& ring, const RingPlan& first,
                                                    const std::vector<PairRound>& rounds, const NodeNames& names,
                                                    const PeerExchange& exchange);

/// The plan of a node's round. A round without neighbours does nothing.
[[nodiscard]] RingPlan plan_of(const PairRound& round, std::uint32_t node, std::chrono::milliseconds timeout);

}  // namespace amldist::fabric
