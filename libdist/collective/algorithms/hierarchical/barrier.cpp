// Barrier: in each node, among the leaders, in each node again.
// Source: N. Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective
// Operation Performance", IPDPS 2000.
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::barrier() {
  if (node_ != nullptr) {
    if (auto status = node_->barrier(); !status) return status;
  }
  if (leaders_) {
    if (auto status = leaders_->barrier(); !status) return status;
  }
  return node_ != nullptr ? node_->barrier() : Result<void>();
}

}  // namespace amldist::collective
