// The back end for host buffers: shared memory inside a node, messages between nodes, and both in turn where there are
// several ranks on several nodes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/backend.hpp"
#include "collective/control_channel.hpp"
#include "collective/node_collectives.hpp"
#include "collective/peer_collectives.hpp"
#include "collective/topology.hpp"

namespace amldist::collective {

/// A gather_all under the vigil of whoever builds a communicator.
using Gather = std::function<Result<std::vector<std::string>>(std::string piece)>;

class HostBackend final : public Backend {
 public:
  /// Collective over the communicator. `gather` is its gather_all.
  [[nodiscard]] static Result<std::unique_ptr<HostBackend>> create(ControlChannel& channel, const CommWatch& watch,
                                                                   const Gather& gather);

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Result<void> run(const Call& call, Vigil& vigil) override;
  [[nodiscard]] Result<void> run_group(std::span<const Call> messages, Vigil& vigil) override;
  [[nodiscard]] Result<void*> allocate(std::size_t bytes) override;
  [[nodiscard]] Result<void> release(void* memory) override;

  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  /// For people: "shared memory (avx512), tcp between 4 nodes".
  [[nodiscard]] std::string describe() const;

 private:
  HostBackend(ControlChannel& channel, const CommWatch& watch, Topology topology);
  [[nodiscard]] Result<void> share_memory(const Gather& gather);
  void separate_all(std::string why);

  [[nodiscard]] Result<void> run_in_node(const Call& call);
  [[nodiscard]] Result<void> run_between_nodes(const Call& call);
  [[nodiscard]] Result<void> run_flat(const Call& call);
  [[nodiscard]] Result<void> hierarchical_allreduce(const Reduction& what);
  [[nodiscard]] Result<void> allreduce_by_leaders(const Reduction& what);
  [[nodiscard]] Result<void> allreduce_by_slices(const Reduction& what);
  [[nodiscard]] Result<void> hierarchical_reduce(const Reduction& what, int root);
  [[nodiscard]] Result<void> hierarchical_broadcast(std::byte* buffer, std::size_t bytes, int root);
  [[nodiscard]] Result<void> hierarchical_allgather(const Call& call, const Blocks& blocks);
  [[nodiscard]] Result<void> hierarchical_barrier();
  [[nodiscard]] Result<void> whole_allreduce(const Reduction& what);
  void divide(const Reduction& what) const;
  /// One rank of each node: `agent` on its own, the first on the others.
  [[nodiscard]] PeerCollectives agents(int agent);

  Reductions kernels_;
  const CommWatch& watch_;
  Topology topology_;
  std::string_view name_;
  std::string trouble_;  ///< why there is no shared memory, if there should be
  Transport transport_;
  SharedMemory memory_;
  std::optional<Arenas> arenas_;
  std::optional<Rounds> rounds_;
  std::optional<NodeCollectives> node_;
  std::optional<PeerCollectives> all_;      ///< every rank
  std::optional<PeerCollectives> leaders_;  ///< the first rank of each node, on those
  std::optional<PeerCollectives> rail_;     ///< the ranks with this one's index, one of each node
  std::uint32_t signature_ = 0;
  Vigil* vigil_ = nullptr;
  std::vector<std::byte> piece_;
};

}  // namespace amldist::collective
