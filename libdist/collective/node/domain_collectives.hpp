// Collectives of a node whose ranks are not all equally near: short messages go through leaders, so that few lines
// cross between caches and sockets. Everything else goes as NodeCollectives has it, and so does all where nobody leads.
//
// Each group of each level has a SlotChannel of its own, in the same shared memory. A reduction goes up from group to
// leader, the last leaders exchange, and the result comes down. A root need not be a leader: the groups that it or a
// leader of its own belongs to are the ones that it sends to, or receives from, directly. Groups and the order in which
// they fold depend on the ranks' places only, so a sum has the same bits in every run with the same places.
//
// Source: R. Graham, G. Shipman, "MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives",
// EuroPVM/MPI 2008; S. Jain, R. Kaleem, M. Balmana et al., "Framework for Scalable Intra-Node Collective Operations
// using Shared Memory", SC 2018. Why, and from how many ranks on: docs/decisions/0029.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/node/node_collectives.hpp"
#include "collective/node/node_levels.hpp"

namespace amldist::collective {

/// Ranks and roots are those within the node.
class DomainCollectives {
 public:
  using Index = std::uint32_t;  ///< of a rank

  /// Bytes of zeroed shared memory for `ranks`; none for so few that nobody ever leads.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t ranks) noexcept;
  [[nodiscard]] static bool has_levels(std::uint32_t ranks) noexcept { return ranks >= fewest_ranks; }
  /// Tells the other ranks where this one is. All must do so, and know that all have, before one of these is made.
  static void publish(std::byte* memory, std::uint32_t rank, const NodePlace& place) noexcept;

  /// `memory` as above, or nullptr: nobody leads. All must outlive this object.
  DomainCollectives(NodeCollectives& all, SlotChannel& rounds, const Reductions& kernels, std::byte* memory);
  ~DomainCollectives();
  DomainCollectives(const DomainCollectives&) = delete;
  DomainCollectives& operator=(const DomainCollectives&) = delete;

  /// Whether short messages go through leaders.
  [[nodiscard]] bool has_leaders() const noexcept { return !levels_.empty(); }
  /// For people: "4 cache domains, leaders"; empty: nothing is known.
  [[nodiscard]] const std::string& describe() const noexcept { return text_; }

  /// Where there are leaders, before each call: like SlotChannel's begin_call() and wait_under().
  void begin_call(std::uint32_t signature, calls::Watchdog& watchdog);

  [[nodiscard]] Result<void> barrier() { return has_leaders() ? barrier_by_leaders() : all_.barrier(); }
  [[nodiscard]] Result<void> allreduce(const calls::Reduction& what) {
    return goes_by_leaders(what) ? allreduce_by_leaders(what) : all_.allreduce(what);
  }
  [[nodiscard]] Result<void> reduce(const calls::Reduction& what, std::uint32_t root) {
    return goes_by_leaders(what) ? reduce_by_leaders(what, root) : all_.reduce(what, root);
  }
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
    return has_leaders() && is_short(bytes) ? broadcast_by_leaders(buffer, bytes, root)
                                            : all_.broadcast(buffer, bytes, root);
  }
  [[nodiscard]] Result<void> reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks) {
    return all_.reduce_scatter(what, blocks);
  }
  [[nodiscard]] Result<void> allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                       std::size_t unit) {
    return all_.allgather(send, recv, blocks, unit);
  }
  [[nodiscard]] Result<void> gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                    std::size_t unit, std::uint32_t root) {
    return all_.gather(send, recv, blocks, unit, root);
  }
  [[nodiscard]] Result<void> scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, std::uint32_t root) {
    return all_.scatter(send, recv, blocks, unit, root);
  }
  [[nodiscard]] Result<void> alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                      const calls::Blocks& recv_blocks, std::size_t unit) {
    return all_.alltoall(send, send_blocks, recv, recv_blocks, unit);
  }

 private:
  /// Fewer ranks have no leaders, whatever the table of settings says.
  static constexpr std::uint32_t fewest_ranks = 4;
  struct Published;
  class Group;
  class CallComparison;

  [[nodiscard]] static constexpr bool is_short(std::size_t bytes) noexcept { return bytes < tuning::one_round_below; }
  /// Partial sums of an average do not fit into a narrow type.
  [[nodiscard]] bool goes_by_leaders(const calls::Reduction& what) const noexcept {
    const bool is_narrow_average = what.op == calls::ReduceOp::avg && what.type != calls::DataType::float32 &&
                                   what.type != calls::DataType::float64;
    return has_leaders() && is_short(what.count * size_of(what.type)) && !is_narrow_average;
  }
  [[nodiscard]] Result<void> barrier_by_leaders();
  [[nodiscard]] Result<void> allreduce_by_leaders(const calls::Reduction& what);
  [[nodiscard]] Result<void> fold_and_share(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce_by_leaders(const calls::Reduction& what, std::uint32_t root);
  [[nodiscard]] Result<void> broadcast_by_leaders(std::byte* buffer, std::size_t bytes, std::uint32_t root);

  void find_levels(std::byte* memory, const NodeDivision& division, const Reductions& kernels);
  /// Of each level: the rank through which `root` takes part in it.
  void find_agents(std::uint32_t root);
  /// The lowest of this rank's levels whose group has that agent.
  [[nodiscard]] std::size_t meeting_level() const noexcept;

  NodeCollectives& all_;
  SlotChannel& rounds_;
  NodeLevels places_;                           ///< all groups of all levels
  std::vector<std::unique_ptr<Group>> levels_;  ///< of this rank, from the innermost
  std::unique_ptr<CallComparison> comparison_;  ///< between this rank's calls and those of whom it waits for
  std::vector<std::uint32_t> agents_;
  std::vector<std::byte> partial_;  ///< result of a reduction on its way to the root
  std::string text_;
};

}  // namespace amldist::collective
