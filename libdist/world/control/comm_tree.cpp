#include "world/control/comm_tree.hpp"

#include <algorithm>

#include "world/bootstrap/tree_shape.hpp"

namespace amldist::world {

CommTree::CommTree(const RankTable& table, std::span<const std::uint32_t> members)
    : table_(table), is_in_order_(std::ranges::is_sorted(members)), ranks_(members.begin(), members.end()) {
  const auto is_table_leader = [&](std::uint32_t rank) { return table.leader_of(table.vertex_of(rank)) == rank; };
  std::ranges::sort(ranks_, [&](std::uint32_t a, std::uint32_t b) {
    const auto vertex_a = table.vertex_of(a);
    const auto vertex_b = table.vertex_of(b);
    if (vertex_a != vertex_b) return vertex_a < vertex_b;
    if (is_table_leader(a) != is_table_leader(b)) return is_table_leader(a);
    return a < b;
  });
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
    const std::uint32_t vertex = table.vertex_of(ranks_[i]);
    if (!vertices_.empty() && vertices_.back() == vertex) continue;
    vertices_.push_back(vertex);
    starts_.push_back(i);
  }
  starts_.push_back(static_cast<std::uint32_t>(ranks_.size()));
}

std::uint32_t CommTree::position_of(std::uint32_t rank) const {
  const auto found = std::ranges::lower_bound(vertices_, table_.vertex_of(rank));
  return static_cast<std::uint32_t>(found - vertices_.begin());
}

std::span<const std::uint32_t> CommTree::ranks_at(std::uint32_t position) const {
  return std::span(ranks_).subspan(starts_[position], starts_[position + 1] - starts_[position]);
}

std::optional<std::uint32_t> CommTree::leader_at(std::uint32_t position, const IsOut& is_out) const {
  for (const std::uint32_t rank : ranks_at(position)) {
    if (!is_out(rank)) return rank;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> CommTree::first_living(const IsOut& is_out) const {
  for (std::uint32_t position = 0; position < positions(); ++position) {
    if (leader_at(position, is_out)) return position;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> CommTree::root(const IsOut& is_out) const {
  const auto position = first_living(is_out);
  return position ? leader_at(*position, is_out) : std::nullopt;
}

std::uint32_t CommTree::place_of(std::uint32_t rank) const {
  const auto node = neighbours_of(rank);
  return starts_[position_of(rank)] + static_cast<std::uint32_t>(std::ranges::find(node, rank) - node.begin());
}

std::optional<std::uint32_t> CommTree::parent_of(std::uint32_t rank, const IsOut& is_out) const {
  std::uint32_t position = position_of(rank);
  const auto own_leader = leader_at(position, is_out);
  if (own_leader && *own_leader != rank) return own_leader;
  while (position != 0) {
    position = tree_parent(position);
    if (const auto leader = leader_at(position, is_out)) return leader;
  }
  const auto top = root(is_out);  // none above is left: the lowest node that is left acts as root
  return top && *top != rank ? top : std::nullopt;
}

/// The leaders that take a position's place: its own, or those of the highest nodes below it that are left.
void CommTree::collect_leaders(std::uint32_t position, const IsOut& is_out, std::vector<std::uint32_t>& out) const {
  if (const auto leader = leader_at(position, is_out)) out.push_back(*leader);
  else collect_children(position, is_out, out);
}

void CommTree::collect_children(std::uint32_t position, const IsOut& is_out, std::vector<std::uint32_t>& out) const {
  const auto [first, end] = tree_children(position, positions());
  for (std::uint32_t child = first; child < end; ++child) collect_leaders(child, is_out, out);
}

std::vector<std::uint32_t> CommTree::children_of(std::uint32_t rank, const IsOut& is_out) const {
  std::vector<std::uint32_t> out;
  const std::uint32_t position = position_of(rank);
  const auto leader = leader_at(position, is_out);
  if (!leader || *leader != rank) return out;
  for (const std::uint32_t each : ranks_at(position)) {
    if (each != rank && !is_out(each)) out.push_back(each);
  }
  collect_children(position, is_out, out);
  if (position != 0 && first_living(is_out) == position) {
    std::vector<std::uint32_t> orphans;
    collect_leaders(0, is_out, orphans);
    std::ranges::copy_if(orphans, std::back_inserter(out), [&](std::uint32_t each) { return each != rank; });
  }
  return out;
}

std::size_t CommTree::subtree_size(std::uint32_t rank) const {
  if (!is_leader(rank)) return 1;
  std::size_t ranks = 0;
  std::uint64_t first = position_of(rank);
  for (std::uint64_t end = first + 1; first < positions();) {  // the nodes of a level below are neighbours
    const std::uint64_t last = std::min<std::uint64_t>(end, positions());
    ranks += starts_[last] - starts_[first];
    first = first * tree_arity + 1;
    end = end * tree_arity + 1;
  }
  return ranks;
}

}  // namespace amldist::world
