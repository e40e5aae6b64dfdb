#include "world/bootstrap/joined_ranks.hpp"

#include "world/bootstrap/tree_shape.hpp"

namespace amldist::world {

bool TreePosition::is_below_root() const noexcept { return index <= tree_arity; }

JoinedRanks::JoinedRanks(world::Group group)
    : group_(std::move(group)), ranks_(group_.size), process_of_rank_(group_.size), seen_(group_.size) {}

TreePosition JoinedRanks::add_leader(const world::JoinRequest& join_request, TableNode node, std::uint16_t port) {
  const auto [known, is_new] =
      index_of_process_.try_emplace(join_request.process, static_cast<std::uint32_t>(nodes_.size()));
  const auto rank = static_cast<std::uint32_t>(join_request.number);
  if (is_new) {
    node.leader = rank;
    nodes_.push_back(std::move(node));
    enter(join_request, {rank, known->second, port, join_request.process, join_request.size});
  }
  return position_of(known->second);
}

void JoinedRanks::add(const JoinedProcess& joined) {
  if (joined.vertex >= nodes_.size()) return;
  enter({group_.name, joined.rank, joined.size, joined.process, nodes_[joined.vertex].host, {}}, joined);
}

void JoinedRanks::enter(const world::JoinRequest& join_request, const JoinedProcess& joined) {
  mark_seen(join_request.number);
  const bool in_range = join_request.number < group_.size;
  const std::uint64_t before = in_range ? process_of_rank_[join_request.number] : 0;
  const world::KnownPeer present = {
      before, before == 0 ? "" : std::string_view(nodes_[ranks_[join_request.number].vertex].host)};
  const world::Admission admission = admit(join_request, group_, before != 0 ? &present : nullptr);
  if (admission.answer != world::HandshakeKind::accepted) {
    if (contradiction_.empty()) contradiction_ = admission.reason;
    return;
  }
  if (before == 0) ++present_;
  process_of_rank_[join_request.number] = joined.process;
  ranks_[join_request.number] = {joined.vertex, joined.port};
}

void JoinedRanks::mark_seen(std::uint64_t rank) {
  if (rank >= seen_.size() || seen_[rank]) return;
  seen_[rank] = true;
  ++seen_count_;
}

std::vector<std::uint32_t> JoinedRanks::missing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t rank = 0; rank < group_.size; ++rank) {
    if (process_of_rank_[rank] == 0) out.push_back(rank);
  }
  return out;
}

TreePosition JoinedRanks::position_of(std::uint32_t index) const {
  if (index == 0) return {};
  const TableNode& parent = nodes_[tree_parent(index)];
  return {index, parent.leader, parent.address, ranks_[parent.leader].port};
}

}  // namespace amldist::world
