// Gather. Short blocks: one rank of each node sends the blocks of its node to the root as one message, a bundle. Long
// blocks: each rank sends straight to the root; ranks of the root's node use shared memory. Source: N. Karonis et al.,
// "Exploiting Hierarchy in Parallel Computer Networks to Optimize Collective Operation Performance", IPDPS 2000.
#include <vector>

#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, int root) {
  if (blocks.count(0) * unit <= tuning::node_bundle_up_to) return gather_bundles(send, recv, blocks, unit, root);
  const std::size_t home = topology_.node_of(root);
  if (topology_.own_node != home) {
    const Message sent = message(root, send, blocks.count(0) * unit);
    return transport_.exchange({&sent, 1}, {}, *watchdog_);
  }
  const calls::BlockList own = blocks_of_node(home, blocks);
  const std::uint32_t index = index_of(topology_.own_ranks(), root);
  if (auto done = gather_in_node(send, recv, own.view(), unit, index); !done || !is(root)) return done;
  return transport_.exchange({}, blocks_of_others(recv, blocks, unit), *watchdog_);
}

/// One message from each node, received directly into the result if its place there is contiguous.
Result<void> HierarchicalCollectives::gather_bundles(const std::byte* send, std::byte* recv,
                                                     const calls::Blocks& blocks, std::size_t unit, int root) {
  const std::size_t block = blocks.count(0) * unit;
  const std::size_t home = topology_.node_of(root);
  const auto& here = topology_.own_ranks();
  const int agent = agent_of(topology_.own_node, root);
  if (topology_.own_node != home) {
    std::byte* const bundle = stage(here.size() * block);
    auto done = gather_in_node(send, bundle, calls::Blocks(blocks.count(0)), unit, index_of(here, agent));
    if (!done || !is(agent)) return done;
    const Message sent = message(root, bundle, here.size() * block);
    return transport_.exchange({&sent, 1}, {}, *watchdog_);
  }
  const calls::BlockList own = blocks_of_node(home, blocks);
  if (auto done = gather_in_node(send, recv, own.view(), unit, index_of(here, root)); !done || !is(root)) return done;
  const auto receives = bundles_of_others(recv, blocks, unit);
  if (auto status = transport_.exchange({}, receives, *watchdog_); !status) return status;
  for (const Message& bundle : receives) {
    const auto& theirs = topology_.nodes[topology_.node_of(bundle.peer)];
    if (!are_joined(theirs, blocks)) unpack(theirs, bundle.data, recv, blocks, unit);
  }
  return {};
}

}  // namespace amldist::collective
