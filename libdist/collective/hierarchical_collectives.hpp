// Collectives of several ranks on each of several nodes: in the node over shared memory, between the nodes over
// messages, in the node again.
#pragma once

#include <optional>
#include <vector>

#include "collective/node_collectives.hpp"
#include "collective/peer_collectives.hpp"
#include "collective/topology.hpp"

namespace amldist::collective {

/// Where `what` is an average, these give the sum: whoever calls them divides at the end.
class HierarchicalCollectives {
 public:
  /// `node` is nullptr where this rank is alone on its node. All outlive this object.
  HierarchicalCollectives(const Topology& topology, Transport& transport, const Reductions& kernels,
                          NodeCollectives* node);

  /// As those of the rounds: messages carry this signature, and waiting is under this vigil.
  void begin_call(std::uint32_t signature, Vigil& vigil) noexcept;
  /// Whether all nodes have equally many ranks: what all-gather and reduce-scatter need.
  [[nodiscard]] bool is_even() const { return topology_.fewest_on_a_node() == topology_.most_on_a_node(); }

  [[nodiscard]] Result<void> barrier();
  [[nodiscard]] Result<void> allreduce(const Reduction& what);
  [[nodiscard]] Result<void> reduce(const Reduction& what, int root);
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, int root);
  /// Equal blocks or listed ones; even nodes only.
  [[nodiscard]] Result<void> allgather(const std::byte* send, std::byte* recv, const Blocks& blocks, std::size_t unit);
  /// `what.count` elements for each rank; even nodes only.
  [[nodiscard]] Result<void> reduce_scatter(const Reduction& what);

 private:
  [[nodiscard]] Result<void> allreduce_by_leaders(const Reduction& what);
  [[nodiscard]] Result<void> allreduce_by_slices(const Reduction& what);
  [[nodiscard]] Result<void> reduce_scatter_piece(const Reduction& what, std::size_t at, std::size_t count);
  /// One rank of each node: `agent` on its own, the first on the others.
  [[nodiscard]] PeerCollectives agents(int agent);
  [[nodiscard]] bool is(int rank) const { return topology_.own_ranks()[topology_.own_index] == rank; }

  const Topology& topology_;
  Transport& transport_;
  const Reductions& kernels_;
  NodeCollectives* node_;
  std::optional<PeerCollectives> leaders_;  ///< the first rank of each node, on those
  std::optional<PeerCollectives> rail_;     ///< the ranks with this one's index, one of each node
  std::uint32_t signature_ = 0;
  Vigil* vigil_ = nullptr;
  std::vector<std::byte> piece_;  ///< at most a few MiB, whatever the message
};

}  // namespace amldist::collective
