// The tree over the ranks of one communicator: inside a node its ranks are below the node's leader, and the leaders
// form a tree with tree_arity children each. Whoever knows the same ranks as lost sees the same tree, so nobody has to
// agree on it. For the world it is the tree of bootstrap, whose connections exist. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "world/bootstrap/rank_table.hpp"

namespace amldist::world {

class CommTree {
 public:
  /// `members`: world ranks, by rank of the communicator.
  CommTree(const RankTable& table, std::span<const std::uint32_t> members);

  /// Whether a world rank is to be left out: it has ended, or does not answer.
  using IsOut = std::function<bool(std::uint32_t world_rank)>;

  /// The rank above; nullopt: this one is the root. All ranks are world ranks.
  [[nodiscard]] std::optional<std::uint32_t> parent_of(std::uint32_t rank, const IsOut& is_out) const;
  /// The ranks directly below: those of its node, and the leaders of the nodes below.
  [[nodiscard]] std::vector<std::uint32_t> children_of(std::uint32_t rank, const IsOut& is_out) const;
  [[nodiscard]] std::optional<std::uint32_t> root(const IsOut& is_out) const;
  /// Where a rank is in the order in which ranks are the root, as those before them are left out.
  [[nodiscard]] std::uint32_t place_of(std::uint32_t rank) const;
  /// How many ranks there are below a rank, and itself, when nobody is left out.
  [[nodiscard]] std::size_t subtree_size(std::uint32_t rank) const;
  /// The communicator's ranks on the rank's node of the tree; the leader comes first.
  [[nodiscard]] std::span<const std::uint32_t> neighbours_of(std::uint32_t rank) const {
    return ranks_at(position_of(rank));
  }
  /// Whether the members' world ranks ascend.
  [[nodiscard]] bool is_in_order() const noexcept { return is_in_order_; }
  [[nodiscard]] bool is_leader(std::uint32_t rank) const { return neighbours_of(rank).front() == rank; }

 private:
  [[nodiscard]] std::uint32_t positions() const noexcept { return static_cast<std::uint32_t>(starts_.size() - 1); }
  [[nodiscard]] std::uint32_t position_of(std::uint32_t rank) const;
  [[nodiscard]] std::span<const std::uint32_t> ranks_at(std::uint32_t position) const;
  [[nodiscard]] std::optional<std::uint32_t> leader_at(std::uint32_t position, const IsOut& is_out) const;
  [[nodiscard]] std::optional<std::uint32_t> first_living(const IsOut& is_out) const;
  void collect_leaders(std::uint32_t position, const IsOut& is_out, std::vector<std::uint32_t>& out) const;
  void collect_children(std::uint32_t position, const IsOut& is_out, std::vector<std::uint32_t>& out) const;

  const RankTable& table_;
  bool is_in_order_;
  std::vector<std::uint32_t> vertices_;  // in ascending order: the position of a node is its index here
  std::vector<std::uint32_t> starts_;    // by position, and the end: in ranks_
  std::vector<std::uint32_t> ranks_;     // by position
};

}  // namespace amldist::world
