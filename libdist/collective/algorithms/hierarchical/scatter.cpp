// Scatter. Short blocks: the root sends the blocks of each node to one of its ranks as one message, a bundle. Long
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

}  // namespace amldist::collective
