// Broadcast: from the root to one rank of each node, then in each node.
// Source: N. Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance", IPDPS 2000.
#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::broadcast(std::byte* buffer, std::size_t bytes, int root) {
  PeerCollectives& between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  if (is(agent)) {
    if (auto status = between.broadcast(buffer, bytes, topology_.node_of(root)); !status) return status;
  }
  if (node_ == nullptr) return {};
  return node_->broadcast(buffer, bytes, index_of(topology_.own_ranks(), agent));
}

}  // namespace amldist::collective
