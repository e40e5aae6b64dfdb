// Barrier: in each node, among the leaders, in each node again.
// Source: N. Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance", IPDPS 2000.
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::barrier() {
  if (node_ != nullptr) {
    if (auto done = node_->barrier(); !done) return done;
  }
  if (leaders_) {
    if (auto done = leaders_->barrier(); !done) return done;
  }
  return node_ != nullptr ? node_->barrier() : Result<void>();
}

}  // namespace amldist::collective
