// All-reduce, in two ways.
//
// Leaders (short): reduce in each node, all-reduce among the leaders, broadcast in each node. Source: N. Karonis et
// al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation Performance", IPDPS 2000.
// Rails (long): reduce-scatter in each node, all-reduce among the ranks with the same index on every node, all-gather
// in each node. Source: M. Bayatpour et al., "Scalable Reduction Collectives with Data Partitioning-based Multi-Leader
// Design", SC 2017.
#include <algorithm>
#include <vector>

#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::allreduce(const calls::Reduction& what) {
  const auto way = tuning::choose_allreduce(what.count * size_of(what.type), topology_.fewest_on_a_node());
  return way == tuning::Hierarchy::leaders ? allreduce_by_leaders(what) : allreduce_by_rails(what);
}

Result<void> HierarchicalCollectives::allreduce_by_leaders(const calls::Reduction& what) {
  if (node_ != nullptr) {
    if (auto status = node_->reduce(what, 0); !status) return status;
  } else {
    copy_bytes(what.recv, what.send, what.count * size_of(what.type));
  }
  if (leaders_) {
    calls::Reduction between = what;
    between.send = what.recv;
    if (auto status = leaders_->allreduce(between); !status) return status;
  }
  return node_ != nullptr ? node_->broadcast(what.recv, what.count * size_of(what.type), 0) : Result<void>();
}

/// Each rank of a node all-reduces one slice of the node's sum with its peers on the other nodes.
Result<void> HierarchicalCollectives::allreduce_by_rails(const calls::Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t rails = topology_.fewest_on_a_node();
  const std::size_t ranks = topology_.own_ranks().size();
  const std::size_t grain = 64 / unit;
  const std::size_t each = ((what.count + rails - 1) / rails + grain - 1) / grain * grain;
  std::vector<std::size_t> offsets(ranks);
  std::vector<std::size_t> counts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = std::min(what.count, r * each);
    counts[r] = r < rails ? std::min(what.count, (r + 1) * each) - offsets[r] : 0;
  }
  const calls::Blocks blocks(counts, offsets);
  std::byte* const slice = what.recv + offsets[topology_.own_index] * unit;
  calls::Reduction mine = what;
  mine.recv = slice;
  if (node_ != nullptr) {
    if (auto status = node_->reduce_scatter(mine, blocks); !status) return status;
  }
  if (rail_) {
    mine.send = slice;
    mine.count = counts[topology_.own_index];
    if (auto status = rail_->allreduce(mine); !status) return status;
  }
  return node_ != nullptr ? node_->allgather(slice, what.recv, blocks, unit) : Result<void>();
}

}  // namespace amldist::collective
