// Reduce-scatter, in two ways.
//
// Leaders (short): an all-reduce by leaders, of which each rank keeps its block. Rails (long): each rank of a node
// computes the node's sums of its peers' blocks and sends them to these peers on the other nodes; then it adds up the
// sums of its own block. In segments of all blocks, so that no buffer grows with the message. Blocks of several lengths
// go directly from rank to rank. Source: M. Bayatpour et al., "Scalable Reduction Collectives with Data
// Partitioning-based Multi-Leader Design", SC 2017.
#include <algorithm>
#include <vector>

#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks) {
  if (blocks.are_listed()) return all_.reduce_scatter(what, blocks);
  const std::size_t unit = size_of(what.type);
  if (tuning::choose_reduce_scatter(what.count * ranks() * unit) == tuning::Hierarchy::leaders) {
    calls::Reduction whole = what;
    whole.count = what.count * ranks();
    whole.recv = stage(whole.count * unit);
    if (auto status = allreduce_by_leaders(whole); !status) return status;
    const auto own = static_cast<std::size_t>(topology_.own_ranks()[topology_.own_index]);
    copy_bytes(what.recv, whole.recv + blocks.offset(own) * unit, what.count * unit);
    return {};
  }
  const std::size_t shares = topology_.nodes.size() * (1 + topology_.most_on_a_node() / topology_.fewest_on_a_node());
  const std::size_t most = std::max<std::size_t>(1, tuning::longest_segment / unit / shares);
  for (std::size_t at = 0; at < what.count; at += most) {
    if (auto status = reduce_scatter_piece(what, at, std::min(most, what.count - at)); !status) return status;
  }
  return {};
}

/// Elements at..at+count of every block: this rank computes its node's sums of its peers' blocks; then each rank takes
/// the sums of its own block from its peers.
Result<void> HierarchicalCollectives::reduce_scatter_piece(const calls::Reduction& what, std::size_t at,
                                                           std::size_t count) {
  const std::size_t bytes = count * size_of(what.type);
  const std::size_t nodes = topology_.nodes.size();
  const std::size_t here = topology_.own_ranks().size();
  std::size_t sums = 0;
  for (std::size_t n = 0; n < nodes; ++n) sums += shares_of(n);
  std::byte* const from_peers = stage((sums + nodes) * bytes) + sums * bytes;
  if (auto status = reduce_in_node(what, at, count); !status) return status;
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<const void*> sources(nodes);
  const std::byte* sum = piece_.data();
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto& theirs = topology_.nodes[n];
    sources[n] = n == topology_.own_node ? sum : from_peers + n * bytes;
    if (n != topology_.own_node) {
      receives.push_back(message(theirs[topology_.own_index % theirs.size()], from_peers + n * bytes, bytes));
      for (std::size_t j = topology_.own_index; j < theirs.size(); j += here) {
        sends.push_back(message(theirs[j], sum + (j / here) * bytes, bytes));
      }
    }
    sum += shares_of(n) * bytes;
  }
  if (auto status = transport_.exchange(sends, receives, *watchdog_); !status) return status;
  kernels_.fold({what.recv + at * size_of(what.type), nullptr, sources.data(), nodes, count, 1, Store::cached},
                what.type, what.op);
  return {};
}

/// The node's sums of these elements of every block, each on the rank that has it as its share, at the start of the
/// staging buffer.
Result<void> HierarchicalCollectives::reduce_in_node(const calls::Reduction& what, std::size_t at, std::size_t count) {
  const std::size_t unit = size_of(what.type);
  const std::size_t here = topology_.own_ranks().size();
  calls::Reduction in_node = what;
  in_node.recv = piece_.data();
  for (const auto& theirs : topology_.nodes) {
    for (std::size_t first = 0; first < theirs.size(); first += here) {
      calls::BlockList blocks;
      for (std::size_t j = first; j < first + here; ++j) {
        const bool is_there = j < theirs.size();
        blocks.add(is_there ? count : 0, is_there ? static_cast<std::size_t>(theirs[j]) * what.count + at : 0);
      }
      if (node_ != nullptr) {
        if (auto status = node_->reduce_scatter(in_node, blocks.view()); !status) return status;
      } else {
        copy_bytes(in_node.recv, what.send + blocks.view().offset(0) * unit, count * unit);
      }
      in_node.recv += blocks.view().count(topology_.own_index) * unit;
    }
  }
  return {};
}

}  // namespace amldist::collective
