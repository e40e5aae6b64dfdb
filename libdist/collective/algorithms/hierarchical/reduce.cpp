// Reduce: in each node, then among one rank of each node to the root, in segments.
// Source: N. Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance", IPDPS 2000.
#include <algorithm>

#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::reduce(const calls::Reduction& what, int root) {
  const std::size_t unit = size_of(what.type);
  const bool is_root = is(root);
  PeerCollectives& between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  const bool is_agent = is(agent);
  const std::size_t most = tuning::longest_segment / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    calls::Reduction part = what;
    part.count = std::min(most, what.count - at);
    part.send = what.send + at * unit;
    if (!is_root && piece_.size() < part.count * unit) piece_.resize(part.count * unit);
    part.recv = is_root ? what.recv + at * unit : piece_.data();
    if (node_ != nullptr) {
      if (auto status = node_->reduce(part, index_of(topology_.own_ranks(), agent)); !status) return status;
      part.send = part.recv;
    }
    if (!is_agent) continue;
    if (auto status = between.reduce(part, topology_.node_of(root)); !status) return status;
  }
  return {};
}

}  // namespace amldist::collective
