// All-gather, in two ways.
//
// Leaders (short): gather in each node, all-gather among the leaders, broadcast in each node. Rails (long): every rank
// gets the blocks of its peers on the other nodes, then the node's ranks share what they have. Source: N. Karonis et
// al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation Performance", IPDPS 2000.
#include <vector>

#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                std::size_t unit) {
  std::size_t all = 0;
  for (std::size_t r = 0; r < ranks(); ++r) all += blocks.count(r);
  const auto way = tuning::choose_allgather(all * unit);
  return way == tuning::Hierarchy::leaders ? allgather_by_leaders(send, recv, blocks, unit)
                                           : allgather_by_rails(send, recv, blocks, unit);
}

/// Blocks go to the leaders, among the leaders, and back to all ranks. If the result is not in node order, a staging
/// buffer holds it in node order first.
Result<void> HierarchicalCollectives::allgather_by_leaders(const std::byte* send, std::byte* recv,
                                                           const calls::Blocks& blocks, std::size_t unit) {
  calls::BlockList of_nodes;
  calls::BlockList own;
  bool is_in_order = true;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    const auto& theirs = topology_.nodes[n];
    const std::size_t begin = of_nodes.sum();
    is_in_order =
        is_in_order && blocks.offset(static_cast<std::size_t>(theirs.front())) == begin && are_joined(theirs, blocks);
    std::size_t end = begin;
    for (const int rank : theirs) {
      const std::size_t count = blocks.count(static_cast<std::size_t>(rank));
      if (n == topology_.own_node) own.add(count, end);
      end += count;
    }
    of_nodes.append(end - begin);
  }
  const std::size_t bytes = of_nodes.sum() * unit;
  std::byte* const all = is_in_order ? recv : stage(bytes);
  if (auto status = gather_in_node(send, all, own.view(), unit, 0); !status) return status;
  if (leaders_) {
    const std::byte* const bundle = all + of_nodes.view().offset(topology_.own_node) * unit;
    if (auto status = leaders_->allgather(bundle, all, of_nodes.view(), unit); !status) return status;
  }
  if (node_ != nullptr) {
    if (auto status = node_->broadcast(all, bytes, 0); !status) return status;
  }
  for (std::size_t n = 0; !is_in_order && n < topology_.nodes.size(); ++n) {
    unpack(topology_.nodes[n], all + of_nodes.view().offset(n) * unit, recv, blocks, unit);
  }
  return {};
}

/// Every rank gets the blocks of its peers on the other nodes, then the node's ranks share what they have.
Result<void> HierarchicalCollectives::allgather_by_rails(const std::byte* send, std::byte* recv,
                                                         const calls::Blocks& blocks, std::size_t unit) {
  if (auto status = exchange_over_rails(send, recv, blocks, unit); !status) return status;
  const auto& here = topology_.own_ranks();
  copy_bytes(recv + blocks.offset(static_cast<std::size_t>(here[topology_.own_index])) * unit, send,
             blocks.count(static_cast<std::size_t>(here[topology_.own_index])) * unit);
  if (node_ == nullptr) return {};
  for (const auto& theirs : topology_.nodes) {
    for (std::size_t first = 0; first < theirs.size(); first += here.size()) {
      calls::BlockList shared;
      for (std::size_t j = first; j < first + here.size(); ++j) {
        const bool is_there = j < theirs.size();
        const auto rank = static_cast<std::size_t>(theirs[is_there ? j : first]);
        shared.add(is_there ? blocks.count(rank) : 0, blocks.offset(rank));
      }
      const std::byte* const mine = recv + shared.view().offset(topology_.own_index) * unit;
      if (auto status = node_->allgather(mine, recv, shared.view(), unit); !status) return status;
    }
  }
  return {};
}

/// If all nodes have the same number of ranks, peers are the ranks with the same index. Otherwise a rank's block goes,
/// on each node, to the rank with its index modulo that node's size.
Result<void> HierarchicalCollectives::exchange_over_rails(const std::byte* send, std::byte* recv,
                                                          const calls::Blocks& blocks, std::size_t unit) {
  const std::size_t index = topology_.own_index;
  if (is_even()) {
    calls::BlockList of_rail;
    for (const auto& theirs : topology_.nodes) {
      const auto rank = static_cast<std::size_t>(theirs[index]);
      of_rail.add(blocks.count(rank), blocks.offset(rank));
    }
    return rail_->allgather(send, recv, of_rail.view(), unit);
  }
  const auto& here = topology_.own_ranks();
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    if (n == topology_.own_node) continue;
    const auto& theirs = topology_.nodes[n];
    const std::size_t own_bytes = blocks.count(static_cast<std::size_t>(here[index])) * unit;
    sends.push_back(message(theirs[index % theirs.size()], send, own_bytes));
    for (std::size_t j = index; j < theirs.size(); j += here.size()) {
      const auto rank = static_cast<std::size_t>(theirs[j]);
      receives.push_back(message(theirs[j], recv + blocks.offset(rank) * unit, blocks.count(rank) * unit));
    }
  }
  return transport_.exchange(sends, receives, *watchdog_);
}

}  // namespace amldist::collective
