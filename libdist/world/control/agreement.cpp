#include "world/control/agreement.hpp"

#include <algorithm>
#include <utility>

namespace amldist::world {
namespace {

/// A rank can be one round behind another at most: who is in round n + 1 has seen everybody arrive there or be
/// excluded.
constexpr std::uint64_t rounds_kept = 4;

bool wants_answer(AgreementMessage::Kind kind) {
  using Kind = AgreementMessage::Kind;
  return kind == Kind::ask || kind == Kind::arrive || kind == Kind::propose;
}

}  // namespace

void Agreement::Round::forget_view() {
  arrivals.clear();
  has_gone_up = false;
  is_proposed = false;
  accepted_by.clear();
  has_accepted = false;
}

Agreement::Agreement(FailureDetectorHost& host, std::uint64_t communicator, std::span<const std::uint32_t> members,
                     std::shared_ptr<const CommTree> tree, std::uint32_t own)
    : host_(host), communicator_(communicator), members_(members), tree_(std::move(tree)), own_(own) {
  look_around();
}

// ---- the program's side ----
void Agreement::open(std::uint64_t number, Clock::time_point now, const Limits& limits) {
  if (!is_waiting()) polled_ = now;
  patience_ = limits.patience;
  Round& round = rounds_[number];
  round.is_open = true;
  round.opened = elapsed_;
  round.deadline = std::min(round.deadline, elapsed_ + limits.deadline);
  newest_ = std::max(newest_, number);
  std::erase_if(rounds_, [this](const auto& each) { return each.first + rounds_kept < newest_; });
  advance_all();
}

void Agreement::arrive(std::uint64_t number, std::uint64_t flags, std::uint64_t purposes) {
  Round& round = rounds_[number];
  round.own = {flags, purposes, std::nullopt};
  round.arrived.insert(own_);
  round.flags_seen &= flags;
  advance_all();
}

void Agreement::exclude(const Exclusions& ranks) {
  std::vector<std::uint32_t> alive;
  for (const auto& [rank, why] : ranks) {
    const bool may_live = why == Exclusion::silent || why == Exclusion::late;
    if (may_live && is_in(rank) && (is_root() || neighbours_.contains(rank))) alive.push_back(rank);
  }
  merge(ranks);
  for (const std::uint32_t rank : alive) send(rank, Kind::here, newest_);  // it learns that the others go on without it
  advance_all();
}

// ---- who is who ----
std::uint32_t Agreement::rank_of(std::uint32_t world_rank) const {
  const auto found =
      tree_->is_in_order() ? std::ranges::lower_bound(members_, world_rank) : std::ranges::find(members_, world_rank);
  return static_cast<std::uint32_t>(found - members_.begin());
}

bool Agreement::is_child(std::uint32_t rank) const {
  return rank != parent_ && neighbours_.contains(rank) && !neighbours_.at(rank).is_hidden;
}

/// The tree of a new view: what came over the old one does not count.
void Agreement::look_around() {
  const auto is_out = [this](std::uint32_t world_rank) {
    const std::uint32_t rank = rank_of(world_rank);
    return rank != own_ && !is_in(rank);
  };
  const std::uint32_t own = members_[own_];
  const auto parent = tree_->parent_of(own, is_out);
  parent_ = parent ? std::optional(rank_of(*parent)) : std::nullopt;
  root_place_ = tree_->place_of(*tree_->root(is_out));
  children_.clear();
  for (const std::uint32_t child : tree_->children_of(own, is_out)) children_.push_back(rank_of(child));
  std::map<std::uint32_t, Neighbour> before = std::exchange(neighbours_, {});
  const auto add = [&](std::uint32_t rank) {
    const auto known = before.find(rank);
    Neighbour neighbour = known == before.end() ? Neighbour{elapsed_, {}, {}, false} : known->second;
    neighbour.is_hidden = false;
    neighbours_.emplace(rank, neighbour);
  };
  if (parent_) add(*parent_);
  for (const std::uint32_t child : children_) add(child);
  for (const auto& [rank, neighbour] : before) {
    if (neighbour.is_hidden && is_in(rank)) neighbours_.emplace(rank, neighbour);
  }
  for (auto& [number, round] : rounds_) round.forget_view();
}

/// Whether a rank that is left out would be connected to this one. Not everybody tells it what was decided without it,
/// but some do, who do not all end at once.
bool Agreement::would_be_beside(std::uint32_t rank) const {
  const auto is_out = [&](std::uint32_t world_rank) {
    const std::uint32_t each = rank_of(world_rank);
    return each != rank && each != own_ && !is_in(each);
  };
  return tree_->parent_of(members_[rank], is_out) == members_[own_] ||
         tree_->parent_of(members_[own_], is_out) == members_[rank];
}

bool Agreement::is_waiting() const {
  return !own_exclusion() && std::ranges::any_of(rounds_, [](const auto& each) { return each.second.waits(); });
}

/// Whether the round does not go on without a neighbour's next word.
bool Agreement::is_awaited(const Round& round, std::uint32_t rank) const {
  if (rank == parent_ || neighbours_.at(rank).is_hidden) return true;
  return round.is_proposed ? !round.accepted_by.contains(rank) : !round.arrivals.contains(rank);
}

const Decision* Agreement::decision(std::uint64_t round) const {
  const auto found = rounds_.find(round);
  return found == rounds_.end() || !found->second.decision ? nullptr : &*found->second.decision;
}

std::optional<Exclusion> Agreement::own_exclusion() const {
  const auto found = excluded_.find(own_);
  return found == excluded_.end() ? std::nullopt : std::optional(found->second);
}

std::uint64_t Agreement::flags_so_far(std::uint64_t round) const {
  const auto found = rounds_.find(round);
  return found == rounds_.end() ? ~std::uint64_t{} : found->second.flags_seen;
}

// ---- messages ----
AgreementMessage Agreement::message(Kind kind, std::uint64_t number) const {
  AgreementMessage out;
  out.communicator = communicator_;
  out.round = number;
  out.kind = kind;
  out.excluded = excluded_;
  out.is_lost = is_lost_;
  const auto found = rounds_.find(number);
  if (found == rounds_.end()) return out;
  const Round& round = found->second;
  out.has_arrived = round.arrived.contains(own_);
  if (kind == Kind::ask || kind == Kind::here) out.flags = round.flags_seen;
  if (kind == Kind::ask && round.deadline != Duration::max())
    out.left = std::chrono::duration_cast<std::chrono::milliseconds>(std::max(round.deadline - elapsed_, Duration(0)));
  return out;
}

void Agreement::send(std::uint32_t to, const AgreementMessage& message) {
  host_.send_to(members_[to], message.to_frame());
}

void Agreement::send_decision(std::uint32_t to, std::uint64_t number, const Decision& value) {
  AgreementMessage out = message(Kind::decide, number);
  out.proposal = {root_place_, value};
  send(to, out);
}

void Agreement::send_arrival(std::uint64_t number, const Round& round) {
  AgreementMessage out = message(Kind::arrive, number);
  const Arrival arrival = joined(round);
  out.flags = arrival.flags;
  out.purposes = arrival.purposes;
  out.proposal = arrival.accepted;
  send(*parent_, out);
}

void Agreement::send_acceptance(std::uint64_t number) {
  AgreementMessage out = message(Kind::accept, number);
  out.proposal = {root_place_, {}};
  send(*parent_, out);
}

void Agreement::take(std::uint32_t from, const AgreementMessage& message) {
  if (from >= members_.size() || from == own_) return;
  if (const auto neighbour = neighbours_.find(from); neighbour != neighbours_.end()) {
    neighbour->second.heard = elapsed_;
    if (neighbour->second.is_hidden) neighbours_.erase(neighbour);  // it answers
  }
  if (message.kind == Kind::decide) return learn(message.round, message.proposal->value, from);
  const bool waits = wants_answer(message.kind);
  if (const Decision* const decided = decision(message.round); decided != nullptr && waits)
    return send_decision(from, message.round, *decided);
  if (own_exclusion()) {
    if (waits) send(from, Kind::out, message.round);
    return;
  }
  if (!is_in(from)) {  // what it thinks of others does not count
    if (waits) send(from, Kind::here, message.round);
    return;
  }
  if (message.kind == Kind::out) {
    const auto why = message.excluded.find(from);
    return exclude({{from, why == message.excluded.end() ? Exclusion::left : why->second}});
  }
  if (const auto mine = message.excluded.find(own_); mine != message.excluded.end()) return step_out(mine->second);
  merge(message.excluded);
  if (message.round > newest_ + 1 || message.round + rounds_kept < newest_) return;
  Round& round = rounds_[message.round];
  if (message.has_arrived) round.arrived.insert(from);
  else round.not_come[from] = elapsed_;
  round.flags_seen &= message.flags;
  const bool has_view = message.excluded.size() == excluded_.size();  // it cannot have more than this rank has now
  if (has_view) take_in_round(from, message, round);
  else if (waits) send(from, Kind::here, message.round);  // so that it gets the view of this rank
  advance_all();
}

void Agreement::take_in_round(std::uint32_t from, const AgreementMessage& message, Round& round) {
  switch (message.kind) {
    case Kind::arrive:
      if (is_child(from)) round.arrivals[from] = {message.flags, message.purposes, message.proposal};
      return;
    case Kind::ask:
      if (message.left != std::chrono::milliseconds::max() && message.left < std::chrono::hours(1))
        round.deadline = std::min<Duration>(round.deadline, elapsed_ + message.left);
      return answer(from, message.round, round);
    case Kind::propose:
      if (from == parent_) take_proposal(message, round);
      return;
    case Kind::accept:
      if (round.is_proposed && is_child(from)) round.accepted_by.insert(from);
      return;
    default:
      return;
  }
}

void Agreement::take_proposal(const AgreementMessage& message, Round& round) {
  if (!round.own || message.proposal->coordinator != root_place_) return;
  if (round.has_accepted) return send_acceptance(message.round);
  if (round.is_proposed) return;
  round.accepted = message.proposal;
  pass_proposal_on(message.round, round);
}

/// Says again what the asker may have missed: a message is lost with the process that passes it on.
void Agreement::answer(std::uint32_t asker, std::uint64_t number, Round& round) {
  if (asker == parent_ && round.has_accepted) return send_acceptance(number);
  if (asker == parent_ && round.has_gone_up && !round.is_proposed) return send_arrival(number, round);
  AgreementMessage out = message(Kind::here, number);
  if (is_child(asker) && round.is_proposed) {
    out.kind = Kind::propose;
    out.proposal = round.accepted;
  }
  send(asker, out);
}

/// More ranks are out: whoever is beside this rank hears of it, and says where it is over the new tree.
void Agreement::merge(const Exclusions& excluded) {
  const std::size_t before = excluded_.size();
  for (const auto& [rank, why] : excluded) {
    if (rank < members_.size() && rank != own_) excluded_.emplace(rank, why);
  }
  if (excluded_.size() == before || own_exclusion()) return;
  look_around();
  for (const auto& [number, round] : rounds_) {
    if (round.decision) continue;
    const Kind kind = round.is_open ? Kind::ask : Kind::here;
    for (const auto& [rank, neighbour] : std::map(neighbours_)) send(rank, kind, number);
  }
}

void Agreement::step_out(Exclusion why) {
  if (!excluded_.emplace(own_, why).second) return;
  for (const auto& [rank, neighbour] : std::map(neighbours_)) {
    if (!has_ended(rank)) send(rank, Kind::out, newest_);
  }
}

// ---- the protocol ----
void Agreement::advance_all() {
  if (own_exclusion()) return;
  for (auto& [number, round] : rounds_) {
    if (!round.decision && round.own) advance(number, round);
    if (own_exclusion()) return;
  }
}

void Agreement::advance(std::uint64_t number, Round& round) {
  const bool all_arrived = round.arrivals.size() == children_.size();
  if (is_root() && all_arrived && !has_proposed(round)) round.accepted = {root_place_, choose(round)};
  if (has_proposed(round) && !round.is_proposed) pass_proposal_on(number, round);
  if (!round.is_proposed) {
    if (is_root() || !all_arrived || round.has_gone_up) return;
    round.has_gone_up = true;
    return send_arrival(number, round);
  }
  if (round.has_accepted || round.accepted_by.size() != children_.size()) return;
  if (is_root()) return learn(number, Decision(round.accepted->value), own_);
  round.has_accepted = true;
  send_acceptance(number);
}

void Agreement::pass_proposal_on(std::uint64_t number, Round& round) {
  round.is_proposed = true;
  round.proposed = elapsed_;
  AgreementMessage proposal = message(Kind::propose, number);
  proposal.proposal = round.accepted;
  for (const std::uint32_t child : std::vector(children_)) send(child, proposal);
}

/// What this rank and those below give, with the proposal of the latest root that any of them has accepted.
Agreement::Arrival Agreement::joined(const Round& round) {
  Arrival out = *round.own;
  out.accepted = round.accepted;
  for (const auto& [rank, arrival] : round.arrivals) {
    out.flags &= arrival.flags;
    out.purposes |= arrival.purposes;
    const auto& accepted = arrival.accepted;
    if (accepted && (!out.accepted || accepted->coordinator > out.accepted->coordinator)) out.accepted = accepted;
  }
  return out;
}

/// What the latest root proposed to any of those who are here; else what they give.
Decision Agreement::choose(const Round& round) const {
  const Arrival all = joined(round);
  return all.accepted ? all.accepted->value : Decision{all.flags, all.purposes, excluded_};
}

void Agreement::learn(std::uint64_t number, const Decision& value, std::uint32_t from) {
  if (number > newest_ + 1 || number + rounds_kept < newest_) return;
  Round& round = rounds_[number];
  if (round.decision || own_exclusion()) return;
  round.decision = value;
  merge(value.excluded);
  // Those who were left out alive hear of it before any rank here goes on: this process may end now.
  const bool is_near_root = is_root() || tree_->place_of(members_[*parent_]) == root_place_;
  for (const auto& [rank, why] : value.excluded) {
    if (rank == own_ || rank >= members_.size() || has_ended(rank)) continue;
    if (is_near_root || would_be_beside(rank)) send_decision(rank, number, value);
  }
  if (const auto mine = value.excluded.find(own_); mine != value.excluded.end()) return step_out(mine->second);
  for (const std::uint32_t child : std::vector(children_)) {
    if (child != from) send_decision(child, number, value);
  }
  if (from != own_ && parent_ && parent_ != from) send_decision(*parent_, number, value);
  advance_all();
}

// ---- time ----
void Agreement::poll(Clock::time_point now) {
  if (!is_waiting()) return;
  elapsed_ += std::clamp<Duration>(now - *polled_, Duration::zero(), patience_ / 4);
  polled_ = now;
  find_ended();
  for (auto& [number, round] : rounds_) {
    if (is_waiting() && round.waits()) watch(number, round);
  }
  advance_all();
}

Clock::time_point Agreement::next_poll() const {
  return is_waiting() ? *polled_ + patience_ / 8 : Clock::time_point::max();
}

void Agreement::find_ended() {
  Exclusions found;
  for (const std::uint32_t world_rank : host_.ended().subspan(ended_)) {
    const std::uint32_t rank = rank_of(world_rank);
    const bool is_member = rank < members_.size() && members_[rank] == world_rank;
    if (is_member) found.emplace(rank, host_.end_of(world_rank) == Liveness::left ? Exclusion::left : Exclusion::dead);
  }
  ended_ = host_.ended().size();
  exclude(found);
}

/// Asks those who have not been heard of for a while, and gives up those who do not answer.
void Agreement::watch(std::uint64_t number, Round& round) {
  Exclusions silent;
  std::vector<std::uint32_t> quiet;
  std::vector<std::uint32_t> due;
  for (auto& [rank, neighbour] : neighbours_) {
    if (!is_awaited(round, rank)) continue;
    const Duration since = std::max({neighbour.heard, neighbour.since, round.opened, round.proposed});
    if (elapsed_ - since > patience_) silent.emplace(rank, Exclusion::silent);
    else if (elapsed_ - since > patience_ / 2) quiet.push_back(rank);
    if (elapsed_ - std::max(neighbour.asked, since) < patience_ / 4) continue;
    neighbour.asked = elapsed_;
    due.push_back(rank);
  }
  for (const std::uint32_t rank : due) send(rank, Kind::ask, number);
  for (const std::uint32_t rank : quiet) look_behind(rank);
  exclude(silent);
  find_late(round);
}

/// Of a node that is silent, all ranks are asked at once, and not one after the other as each takes the lead.
void Agreement::look_behind(std::uint32_t rank) {
  if (!tree_->is_leader(members_[rank]) || neighbours_.at(rank).is_hidden) return;
  for (const std::uint32_t world_rank : tree_->neighbours_of(members_[rank])) {
    const std::uint32_t each = rank_of(world_rank);
    if (each != own_ && is_in(each)) neighbours_.try_emplace(each, Neighbour{elapsed_, {}, {}, true});
  }
}

/// Leaves out who has not come, among those beside this rank: each of them looks at those below it. Of the root's,
/// those below must do it, a little later.
void Agreement::find_late(Round& round) {
  if (!round.waits() || elapsed_ < round.deadline) return;
  const auto has_not_come = [&](std::uint32_t rank) {
    const auto said = round.not_come.find(rank);  // since it is connected to this rank
    return !round.arrived.contains(rank) && said != round.not_come.end() && said->second >= neighbours_.at(rank).since;
  };
  Exclusions late;
  for (const std::uint32_t child : children_) {
    if (round.own && !round.is_proposed && has_not_come(child)) late.emplace(child, Exclusion::late);
  }
  const bool waits_too_long = elapsed_ >= round.deadline + patience_;
  if (parent_ && waits_too_long && has_not_come(*parent_)) late.emplace(*parent_, Exclusion::late);
  exclude(late);
}

}  // namespace amldist::world
