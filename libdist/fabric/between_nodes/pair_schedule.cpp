#include "fabric/between_nodes/pair_schedule.hpp"

#include <algorithm>

namespace amldist::fabric {
namespace {

PairRound with(std::uint32_t partner, std::uint32_t node, std::uint32_t nodes) {
  if (partner == node || partner >= nodes) return {};
  return {partner, partner};
}

std::vector<PairRound> log_rounds(std::uint32_t node, std::uint32_t nodes) {
  std::vector<PairRound> out;
  for (std::uint32_t bit = 1; bit < nodes; bit *= 2) out.push_back(with(node ^ bit, node, nodes));
  return out;
}

/// A round-robin tournament: the last player stays, the others rotate. If their number is odd, the one that would play
/// against it rests.
std::vector<PairRound> all_rounds(std::uint32_t node, std::uint32_t nodes) {
  const std::uint32_t turning = nodes - 1 + nodes % 2;
  std::vector<PairRound> out;
  out.reserve(turning);
  for (std::uint32_t round = 0; round < turning; ++round) {
    // In each round exactly one of the rotating players would play against itself: twice its number is the round's.
    if (node == turning) {
      const std::uint32_t single = round % 2 == 0 ? round / 2 : (round + turning) / 2;
      out.push_back(with(single, node, nodes));
      continue;
    }
    const std::uint32_t partner = (round + turning - node) % turning;
    out.push_back(with(partner == node ? turning : partner, node, nodes));
  }
  return out;
}

}  // namespace

std::vector<PairRound> pair_rounds(launch::RdmaPairs pairs, std::uint32_t node, std::uint32_t nodes) {
  if (nodes < 2 || pairs == launch::RdmaPairs::off) return {};
  if (pairs == launch::RdmaPairs::ring) return {{(node + 1) % nodes, (node + nodes - 1) % nodes}};
  if (pairs == launch::RdmaPairs::all && nodes <= most_nodes_of_all_pairs) return all_rounds(node, nodes);
  return log_rounds(node, nodes);
}

std::vector<std::uint32_t> peers_of(const std::vector<PairRound>& rounds) {
  std::vector<std::uint32_t> out;
  for (const PairRound& round : rounds) {
    for (const auto& peer : {round.to, round.from}) {
      if (peer && std::ranges::find(out, *peer) == out.end()) out.push_back(*peer);
    }
  }
  return out;
}

std::vector<std::optional<std::size_t>> match_rails(const std::vector<std::string>& own,
                                                    const std::vector<std::string>& other) {
  std::vector<std::optional<std::size_t>> out(own.size());
  std::vector<bool> taken(other.size(), false);
  const bool one_set = std::ranges::is_permutation(own, other);
  for (std::size_t rail = 0; (one_set || own.size() != other.size()) && rail < own.size(); ++rail) {
    const auto found = std::ranges::find(other, own[rail]);
    if (found == other.end()) continue;
    out[rail] = static_cast<std::size_t>(found - other.begin());
    taken[*out[rail]] = true;
  }
  for (auto& each : out) {
    if (each) continue;
    const auto left = std::ranges::find(taken, false);
    if (left == taken.end()) break;
    *left = true;
    each = static_cast<std::size_t>(left - taken.begin());
  }
  return out;
}

}  // namespace amldist::fabric
