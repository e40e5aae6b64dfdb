// All-to-all, in two ways.
//
// Leaders (short): the leader of a node collects all blocks of its ranks, exchanges bundles with the other leaders, and
// distributes what it received. Direct (long): every pair of ranks on different nodes exchanges its two blocks; inside
// a node shared memory is used. Source: N. Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to
// Optimize Collective Operation Performance", IPDPS 2000.
#include <utility>
#include <vector>

#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<void> HierarchicalCollectives::alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                               const calls::Blocks& recv_blocks, std::size_t unit) {
  const std::size_t block = send_blocks.are_equal() ? send_blocks.count(0) * unit : SIZE_MAX;
  if (tuning::choose_alltoall(block, ranks(), topology_.most_on_a_node()) == tuning::Hierarchy::leaders) {
    return alltoall_by_leaders(send, recv, block);
  }
  const calls::BlockList out = blocks_of_node(topology_.own_node, send_blocks);
  const calls::BlockList in = blocks_of_node(topology_.own_node, recv_blocks);
  if (node_ != nullptr) {
    if (auto status = node_->alltoall(send, out.view(), recv, in.view(), unit); !status) return status;
  } else {
    copy_bytes(block_of(recv, in.view(), 0, unit), block_of(send, out.view(), 0, unit), in.sum() * unit);
  }
  return all_.alltoall_beyond(topology_.own_ranks(), send, send_blocks, recv, recv_blocks, unit);
}

/// The node's ranks send all blocks to their leader, which exchanges them with the other leaders and distributes what
/// it received.
Result<void> HierarchicalCollectives::alltoall_by_leaders(const std::byte* send, std::byte* recv, std::size_t block) {
  const std::size_t of_rank = ranks() * block;
  const std::size_t of_node = topology_.own_ranks().size() * of_rank;
  std::byte* const collected = stage(leaders_ ? 3 * of_node : 0);
  std::byte* const out = leaders_ ? collected + of_node : nullptr;  // only leaders have staging memory
  if (auto status = gather_in_node(send, collected, calls::Blocks(of_rank), 1, 0); !status) return status;
  if (leaders_) {
    if (auto status = exchange_bundles(collected, out, out + of_node, block); !status) return status;
  }
  return scatter_in_node(out, recv, calls::Blocks(of_rank), 1, 0);
}

/// Exchanges bundles from `collected` (ordered by own rank, then by destination) into `out` (ordered by own rank, then
/// by source). A bundle contains, for each source rank, its blocks for all destination ranks. `in` is scratch memory.
Result<void> HierarchicalCollectives::exchange_bundles(const std::byte* collected, std::byte* out, std::byte* in,
                                                       std::size_t block) {
  const auto& here = topology_.own_ranks();
  const std::size_t of_rank = ranks() * block;
  const auto at = [&](std::size_t own, int other) { return own * of_rank + static_cast<std::size_t>(other) * block; };
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::size_t begin = 0;
  for (const auto& theirs : topology_.nodes) {
    const std::size_t bytes = here.size() * theirs.size() * block;
    const bool is_own = theirs.front() == here.front();  // blocks inside the own node form a bundle too
    std::byte* bundle = (is_own ? in : out) + begin;
    if (!is_own) {
      sends.push_back(message(theirs.front(), bundle, bytes));
      receives.push_back(message(theirs.front(), in + begin, bytes));
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      for (const int rank : theirs) copy_bytes(std::exchange(bundle, bundle + block), collected + at(i, rank), block);
    }
    begin += bytes;
  }
  if (auto status = transport_.exchange(sends, receives, *watchdog_); !status) return status;
  const std::byte* bundle = in;
  for (const auto& theirs : topology_.nodes) {
    for (const int rank : theirs) {
      for (std::size_t i = 0; i < here.size(); ++i) {
        copy_bytes(out + at(i, rank), std::exchange(bundle, bundle + block), block);
      }
    }
  }
  return {};
}

}  // namespace amldist::collective
