// TaskMap: which rank runs on which node.
//
// Nodes are numbered 0..nodes-1 in the order of the step's node list (SLURM_NODEID); ranks 0..size-1 (SLURM_PROCID).
// A map is a sequence of blocks, in rank order: "the next tasks*nodes ranks go to nodes first..first+nodes-1, `tasks`
// on each". Some maps of 8 ranks on 4 nodes:
//
//   block      0,1 / 2,3 / 4,5 / 6,7      (vector,(0,4,2))
//   cyclic     0,4 / 1,5 / 2,6 / 3,7      (vector,(0,4,1))          a list shorter than the step repeats
//   uneven     0,1,2 / 3,4,5 / 6 / 7      (vector,(0,2,3),(2,2,1))
//   host file  1 / 3 / 0,2 on 3 nodes     (vector,(2,1,1),(0,1,1),(2,1,1),(1,1,1))
//
// The text form is the process mapping of PMI (PMI_process_mapping, SLURM_PMIX_MAPPING_SERV), so one grammar reads
// both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "base/text/tasks_per_node.hpp"

namespace amldist::launch {

/// How Slurm deals ranks to nodes. `arbitrary` (host files) needs the exact map.
struct Distribution {
  enum class Kind { block, cyclic, plane, arbitrary };
  Kind kind = Kind::block;
  std::uint32_t plane_size = 0;  ///< ranks at a time, only for plane

  friend bool operator==(const Distribution&, const Distribution&) = default;
};

/// Parses `--distribution` as srun accepts it and as SLURM_DISTRIBUTION stores it: "block", "cyclic:block,pack",
/// "plane=2", "arbitrary"; "*" and "" mean the default. `plane_size` is SLURM_DIST_PLANESIZE, used if the text has
/// none. Text after the first ':' or ',' is about sockets and cores and is ignored.
[[nodiscard]] Result<Distribution> parse_distribution(std::string_view text, std::optional<std::uint32_t> plane_size,
                                                      std::uint64_t tasks, std::uint64_t nodes);

/// Slurm's default distribution: block if tasks > nodes, else cyclic.
[[nodiscard]] Distribution default_distribution(std::uint64_t tasks, std::uint64_t nodes) noexcept;

/// An immutable map of ranks to nodes. Every node has at least one rank. Const members are thread-safe.
class TaskMap {
 public:
  /// From `first_rank` on: `tasks` ranks on each of `nodes` consecutive nodes.
  struct Block {
    std::uint32_t first_rank;
    std::uint32_t first_node;
    std::uint32_t nodes;
    std::uint32_t tasks;

    friend bool operator==(const Block&, const Block&) = default;
  };

  /// From the number of tasks of each node and the distribution. Errors: unavailable for `arbitrary`,
  /// limit if dealing takes more than most_blocks blocks.
  [[nodiscard]] static Result<TaskMap> from_tasks_per_node(std::span<const TasksRun> tasks_per_node,
                                                           Distribution distribution);
  /// From the node of each rank. Errors: mismatch if a node below `nodes` has no rank, or an index is not below it.
  [[nodiscard]] static Result<TaskMap> from_nodes_of_ranks(std::span<const std::uint32_t> node_of_rank,
                                                           std::uint32_t nodes);
  /// Most blocks that a text may expand to, before equal neighbours are merged: 2^20 (16 MB, some milliseconds).
  /// Without it, a few bytes that repeat could fill a node's memory or keep its processor.
  static constexpr std::size_t most_blocks = 1UL << 20;

  /// From PMI's text, which repeats until `size` ranks are placed. Errors: invalid_argument, mismatch, limit.
  [[nodiscard]] static Result<TaskMap> parse(std::string_view vector, std::uint32_t size, std::uint32_t nodes);

  /// PMI's text, as short as equal blocks allow.
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::span<const Block> blocks() const noexcept { return blocks_; }

  /// Node of a rank below size(); logarithmic in the number of blocks.
  [[nodiscard]] std::uint32_t node_of(std::uint32_t rank) const noexcept;
  /// How many lower ranks the same node has; linear in the number of blocks, as are the next two.
  [[nodiscard]] std::uint32_t local_rank_of(std::uint32_t rank) const noexcept;
  [[nodiscard]] std::uint32_t tasks_on(std::uint32_t node) const noexcept;
  /// Ranks of a node, ascending.
  [[nodiscard]] std::vector<std::uint32_t> ranks_on(std::uint32_t node) const;
  /// Number of tasks that every node has, or nullopt if they differ; constant time.
  [[nodiscard]] std::optional<std::uint32_t> uniform_tasks_per_node() const noexcept {
    return fewest_ == most_ ? std::optional(most_) : std::nullopt;
  }
  /// Most ranks on one node; constant time.
  [[nodiscard]] std::uint32_t most_tasks_on_a_node() const noexcept { return most_; }

  /// NODE_RANK: index of the node in the order of each node's lowest rank, so the host of rank 0 is always 0.
  [[nodiscard]] std::uint32_t node_rank_of(std::uint32_t node) const noexcept;
  /// Inverse of node_rank_of.
  [[nodiscard]] std::uint32_t node_at(std::uint32_t node_rank) const noexcept;

  friend bool operator==(const TaskMap& a, const TaskMap& b) { return a.nodes_ == b.nodes_ && a.blocks_ == b.blocks_; }

 private:
  TaskMap() = default;
  void append(std::uint32_t first_node, std::uint32_t nodes, std::uint32_t tasks);
  void join_last_blocks();
  [[nodiscard]] Result<TaskMap> finish(std::uint32_t nodes) &&;
  [[nodiscard]] Result<void> count_tasks();
  void order_nodes();
  [[nodiscard]] std::vector<std::uint32_t> counts() const;

  std::vector<Block> blocks_;
  std::uint32_t size_ = 0;
  std::uint32_t nodes_ = 0;
  std::uint32_t fewest_ = 0;  // tasks on a node
  std::uint32_t most_ = 0;
  // Empty if node rank equals node number (the usual case); else node_rank by node, and the inverse.
  std::vector<std::uint32_t> node_rank_;
  std::vector<std::uint32_t> node_at_;
};

}  // namespace amldist::launch
