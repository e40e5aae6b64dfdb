// Scatter. Short blocks: the blocks of each node go to one of its ranks as one message, a bundle. Long
// blocks: the root sends straight to each rank; ranks of the root's node use shared memory. Source: N. Karonis et al.,
// "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation Performance", IPDPS 2000.
#include <vector>

#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                              std::size_t unit, int root) {
  if (blocks.count(0) * unit <= tuning::node_bundle_up_to) return scatter_bundles(send, recv, blocks, unit, root);
  const std::size_t home = topology_.node_of(root);
  if (topology_.own_node != home) {
    const Message received = message(root, recv, blocks.count(0) * unit);
    return transport_.exchange({}, {&received, 1}, *watchdog_);
  }
  if (is(root)) {
    if (auto status = transport_.exchange(blocks_of_others(send, blocks, unit), {}, *watchdog_); !status) return status;
  }
  const calls::BlockList own = blocks_of_node(home, blocks);
  return scatter_in_node(send, recv, own.view(), unit, index_of(topology_.own_ranks(), root));
}

Result<void> HierarchicalCollectives::scatter_bundles(const std::byte* send, std::byte* recv,
                                                      const calls::Blocks& blocks, std::size_t unit, int root) {
  const std::size_t block = blocks.count(0) * unit;
  const std::size_t home = topology_.node_of(root);
  const auto& here = topology_.own_ranks();
  const bool is_tree = is_even() && tuning::is_scatter_tree_faster(here.size() * block, topology_.nodes.size());
  if (is_tree) return scatter_even_bundles(send, recv, blocks, unit, root);
  const int agent = agent_of(topology_.own_node, root);
  if (topology_.own_node != home) {
    std::byte* const bundle = stage(here.size() * block);
    if (is(agent)) {
      const Message received = message(root, bundle, here.size() * block);
      if (auto status = transport_.exchange({}, {&received, 1}, *watchdog_); !status) return status;
    }
    return scatter_in_node(bundle, recv, calls::Blocks(blocks.count(0)), unit, index_of(here, agent));
  }
  if (is(root)) {
    const auto sends = bundles_of_others(send, blocks, unit);
    for (const Message& bundle : sends) {
      const auto& theirs = topology_.nodes[topology_.node_of(bundle.peer)];
      if (!are_joined(theirs, blocks)) pack(theirs, send, blocks, unit, bundle.data);
    }
    if (auto status = transport_.exchange(sends, {}, *watchdog_); !status) return status;
  }
  const calls::BlockList own = blocks_of_node(home, blocks);
  return scatter_in_node(send, recv, own.view(), unit, index_of(here, root));
}

/// Bundles of equal length go through a tree of the nodes.
Result<void> HierarchicalCollectives::scatter_even_bundles(const std::byte* send, std::byte* recv,
                                                           const calls::Blocks& blocks, std::size_t unit, int root) {
  PeerCollectives& between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  const std::size_t bytes = topology_.own_ranks().size() * blocks.count(0) * unit;  // of a bundle
  const bool packs = is(root) && !are_in_rank_order(topology_.nodes);
  std::byte* const bundle = stage((packs ? topology_.nodes.size() + 1 : 1) * bytes);
  const std::byte* all = send;
  if (packs) {
    std::byte* const bundles = bundle + bytes;
    for (std::size_t n = 0; n < topology_.nodes.size(); ++n)
      pack(topology_.nodes[n], send, blocks, unit, bundles + n * bytes);
    all = bundles;
  }
  if (is(agent)) {
    if (auto status = between.scatter(all, bundle, calls::Blocks(bytes), 1, topology_.node_of(root)); !status)
      return status;
  }
  return scatter_in_node(bundle, recv, calls::Blocks(blocks.count(0)), unit, index_of(topology_.own_ranks(), agent));
}

}  // namespace amldist::collective
