#include "collective/bootstrap/roster.hpp"

#include "collective/bootstrap/tree_shape.hpp"

namespace amldist::collective {

bool TreePosition::is_below_root() const noexcept { return index <= tree_arity; }

Roster::Roster(wireup::Group group)
    : group_(std::move(group)), ranks_(group_.size), process_of_rank_(group_.size), seen_(group_.size) {}

TreePosition Roster::add_leader(const wireup::Greeting& greeting, TableNode node, std::uint16_t port) {
  const auto [known, is_new] =
      index_of_process_.try_emplace(greeting.process, static_cast<std::uint32_t>(nodes_.size()));
  const auto rank = static_cast<std::uint32_t>(greeting.number);
  if (is_new) {
    node.leader = rank;
    nodes_.push_back(std::move(node));
    enter(greeting, {rank, known->second, port, greeting.process, greeting.size});
  }
  return position_of(known->second);
}

void Roster::add(const Arrival& arrival) {
  if (arrival.vertex >= nodes_.size()) return;
  enter({group_.name, arrival.rank, arrival.size, arrival.process, nodes_[arrival.vertex].host, {}}, arrival);
}

void Roster::enter(const wireup::Greeting& greeting, const Arrival& arrival) {
  mark_seen(greeting.number);
  const bool in_range = greeting.number < group_.size;
  const std::uint64_t before = in_range ? process_of_rank_[greeting.number] : 0;
  const wireup::KnownPeer present = {before,
                                     before == 0 ? "" : std::string_view(nodes_[ranks_[greeting.number].vertex].host)};
  const wireup::Judgement judgement = judge(greeting, group_, before != 0 ? &present : nullptr);
  if (judgement.answer != wireup::HandshakeKind::accepted) {
    if (contradiction_.empty()) contradiction_ = judgement.reason;
    return;
  }
  if (before == 0) ++present_;
  process_of_rank_[greeting.number] = arrival.process;
  ranks_[greeting.number] = {arrival.vertex, arrival.port};
}

void Roster::mark_seen(std::uint64_t rank) {
  if (rank >= seen_.size() || seen_[rank]) return;
  seen_[rank] = true;
  ++seen_count_;
}

std::vector<std::uint32_t> Roster::missing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t rank = 0; rank < group_.size; ++rank) {
    if (process_of_rank_[rank] == 0) out.push_back(rank);
  }
  return out;
}

TreePosition Roster::position_of(std::uint32_t index) const {
  if (index == 0) return {};
  const TableNode& parent = nodes_[tree_parent(index)];
  return {index, parent.leader, parent.address, ranks_[parent.leader].port};
}

}  // namespace amldist::collective
