// Collectives of several ranks on each of several nodes: shared memory inside a node, messages between nodes, shared
// memory again.
#pragma once

#include <optional>
#include <vector>

#include "collective/algorithms/hierarchical/topology.hpp"
#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

/// For an average these compute the sum; the caller divides at the end.
class HierarchicalCollectives {
 public:
  using Index = int;  ///< of a rank: its number in the communicator

  /// `all` is every rank; `node` is nullptr if this rank is alone on its node. All must outlive this object.
  HierarchicalCollectives(const Topology& topology, Transport& transport, const Reductions& kernels,
                          PeerCollectives& all, NodeCollectives* node);

  /// Like SlotChannel's: messages carry this signature, and waits use this watchdog.
  void begin_call(std::uint32_t signature, calls::Watchdog& watchdog) noexcept;

  [[nodiscard]] Result<void> barrier();
  [[nodiscard]] Result<void> allreduce(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce(const calls::Reduction& what, int root);
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, int root);
  /// Equal or explicit blocks, known to all ranks.
  [[nodiscard]] Result<void> allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                       std::size_t unit);
  /// Equal blocks, of `what.count` elements.
  [[nodiscard]] Result<void> reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks);
  /// Equal blocks.
  [[nodiscard]] Result<void> gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                    std::size_t unit, int root);
  [[nodiscard]] Result<void> scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, int root);
  /// Equal blocks, or explicit ones whose counts only the two ranks of a pair know.
  [[nodiscard]] Result<void> alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                      const calls::Blocks& recv_blocks, std::size_t unit);

 private:
  [[nodiscard]] Result<void> allreduce_by_leaders(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_by_rails(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce_scatter_piece(const calls::Reduction& what, std::size_t at, std::size_t count);
  [[nodiscard]] Result<void> reduce_in_node(const calls::Reduction& what, std::size_t at, std::size_t count);
  [[nodiscard]] Result<void> allgather_by_leaders(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                  std::size_t unit);
  [[nodiscard]] Result<void> allgather_by_rails(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                std::size_t unit);
  [[nodiscard]] Result<void> exchange_over_rails(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                 std::size_t unit);
  [[nodiscard]] Result<void> gather_bundles(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                            std::size_t unit, int root);
  [[nodiscard]] Result<void> scatter_bundles(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, int root);
  [[nodiscard]] Result<void> scatter_even_bundles(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                                  std::size_t unit, int root);
  [[nodiscard]] Result<void> alltoall_by_leaders(const std::byte* send, std::byte* recv, std::size_t block);
  [[nodiscard]] Result<void> exchange_bundles(const std::byte* collected, std::byte* out, std::byte* in,
                                              std::size_t block);

  /// Inside the node, or alone: copies the own block to `to`, on the rank with this index on the node.
  [[nodiscard]] Result<void> gather_in_node(const std::byte* send, std::byte* to, const calls::Blocks& blocks,
                                            std::size_t unit, std::uint32_t index);
  [[nodiscard]] Result<void> scatter_in_node(const std::byte* from, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, std::uint32_t index);
  /// One rank of each node: `agent` on its own node, the leader on the others. Kept until the next call with another
  /// agent, with its scratch memory: MPI may still read that after a call has failed.
  [[nodiscard]] PeerCollectives& agents(int agent);
  [[nodiscard]] int agent_of(std::size_t node, int root) const;
  [[nodiscard]] calls::BlockList blocks_of_node(std::size_t node, const calls::Blocks& blocks) const;
  [[nodiscard]] std::vector<Message> blocks_of_others(const std::byte* buffer, const calls::Blocks& blocks,
                                                      std::size_t unit) const;
  [[nodiscard]] std::vector<Message> bundles_of_others(const std::byte* buffer, const calls::Blocks& blocks,
                                                       std::size_t unit);
  [[nodiscard]] Message message(int rank, const std::byte* data, std::size_t bytes) const;
  [[nodiscard]] std::size_t ranks() const;
  /// The other node's ranks whose sums this rank computes: one, or a few if this node has fewer ranks.
  [[nodiscard]] std::size_t shares_of(std::size_t node) const;
  [[nodiscard]] std::byte* stage(std::size_t bytes);
  /// Whether all nodes have equally many ranks.
  [[nodiscard]] bool is_even() const { return topology_.fewest_on_a_node() == topology_.most_on_a_node(); }
  [[nodiscard]] bool is(int rank) const { return topology_.own_ranks()[topology_.own_index] == rank; }

  const Topology& topology_;
  Transport& transport_;
  const Reductions& kernels_;
  PeerCollectives& all_;
  NodeCollectives* node_;
  std::optional<PeerCollectives> leaders_;  ///< the leaders; set on leaders only
  std::optional<PeerCollectives> rail_;     ///< the ranks with this rank's index, one of each node
  std::optional<PeerCollectives> agents_;   ///< of agents(agents_for_)
  int agents_for_ = 0;
  std::uint32_t signature_ = 0;
  calls::Watchdog* watchdog_ = nullptr;
  std::vector<std::byte> piece_;  ///< at most a few MiB for any message, or 4 KiB for each rank
};

}  // namespace amldist::collective
