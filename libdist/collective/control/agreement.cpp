#include "collective/control/agreement.hpp"

#include <algorithm>
#include <utility>

namespace amldist::collective {
namespace {

/// A rank can be one round behind another at most: who is in round n + 1 has seen everybody arrive there or be
/// excluded.
constexpr std::uint64_t rounds_kept = 4;

}  // namespace

Agreement::Agreement(FailureDetectorHost& host, std::uint64_t communicator, std::vector<std::uint32_t> members,
                     std::uint32_t own)
    : host_(host), communicator_(communicator), members_(std::move(members)), own_(own), heard_(members_.size()) {}

// ---- the program's side ----
void Agreement::open(std::uint64_t number, Clock::time_point now, const Limits& limits) {
  if (!is_waiting()) polled_ = now;
  patience_ = limits.patience;
  Round& round = rounds_[number];
  round.is_open = true;
  round.opened = elapsed_;
  round.deadline = elapsed_ + limits.deadline;
  newest_ = std::max(newest_, number);
  std::erase_if(rounds_, [this](const auto& each) { return each.first + rounds_kept < newest_; });
  note_new_coordinator();
  advance_all();
}

void Agreement::arrive(std::uint64_t number, std::uint64_t flags, std::uint64_t purposes) {
  Round& round = rounds_[number];
  round.arrivals[own_] = {flags, purposes, std::nullopt};
  round.arrived.insert(own_);
  round.flags_seen &= flags;
  advance_all();
}

void Agreement::exclude(std::uint32_t rank, Exclusion why) {
  if (rank == own_) return step_out(why);
  if (rank >= members_.size() || !excluded_.emplace(rank, why).second) return;
  note_new_coordinator();
  // It may be alive: it learns that the others go on without it.
  if (why == Exclusion::silent || why == Exclusion::late) send(rank, Kind::here, newest_);
  advance_all();
}

// ---- who is who ----
std::uint32_t Agreement::coordinator() const {
  std::uint32_t rank = 0;
  while (rank != own_ && !is_in(rank)) ++rank;
  return rank;
}

void Agreement::note_new_coordinator() {
  const std::uint32_t now = coordinator();
  if (now == known_coordinator_) return;
  known_coordinator_ = now;
  coordinated_since_ = elapsed_;
}

bool Agreement::is_waiting() const {
  return !own_exclusion() && std::ranges::any_of(rounds_, [](const auto& each) { return each.second.waits(); });
}

/// Those without whom the round does not go on, but this rank itself.
std::vector<std::uint32_t> Agreement::awaited(const Round& round) const {
  std::vector<std::uint32_t> out;
  if (!round.waits()) return out;
  if (!coordinates()) return {coordinator()};
  const bool proposed = has_proposed(round);
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (rank == own_ || !is_in(rank)) continue;
    if (proposed ? !round.accepted_by.contains(rank) : !round.arrivals.contains(rank)) out.push_back(rank);
  }
  return out;
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
  out.has_arrived = found->second.arrived.contains(own_);
  if (kind == Kind::ask) out.flags = found->second.flags_seen;
  return out;
}

void Agreement::send(std::uint32_t to, const AgreementMessage& message) {
  host_.send_to(members_[to], message.to_frame());
}

void Agreement::send_decision(std::uint32_t to, std::uint64_t number, const Decision& value) {
  AgreementMessage out = message(Kind::decide, number);
  out.proposal = {own_, value};
  send(to, out);
}

void Agreement::send_arrival(std::uint64_t number, const Round& round) {
  AgreementMessage out = message(Kind::arrive, number);
  const Arrival& own = round.arrivals.at(own_);
  out.flags = own.flags;
  out.purposes = own.purposes;
  out.proposal = round.accepted;
  send(coordinator(), out);
}

void Agreement::take(std::uint32_t from, const AgreementMessage& message) {
  if (from >= members_.size() || from == own_) return;
  heard_[from] = elapsed_;
  if (message.kind == Kind::decide) return learn(message.round, message.proposal->value, false);
  const bool wants_answer = message.kind == Kind::ask || message.kind == Kind::arrive || message.kind == Kind::propose;
  if (const Decision* const decided = decision(message.round); decided != nullptr && wants_answer)
    return send_decision(from, message.round, *decided);
  if (own_exclusion()) {
    if (wants_answer) send(from, Kind::out, message.round);
    return;
  }
  if (!is_in(from)) {  // what it thinks of others does not count
    if (wants_answer) send(from, Kind::here, message.round);
    return;
  }
  if (message.kind == Kind::out) {
    const auto why = message.excluded.find(from);
    return exclude(from, why == message.excluded.end() ? Exclusion::left : why->second);
  }
  if (const auto mine = message.excluded.find(own_); mine != message.excluded.end()) return step_out(mine->second);
  merge(message.excluded);
  if (message.round > newest_ + 1 || message.round + rounds_kept < newest_) return;
  take_in_round(from, message, rounds_[message.round]);
  advance_all();
}

void Agreement::take_in_round(std::uint32_t from, const AgreementMessage& message, Round& round) {
  if (message.has_arrived) round.arrived.insert(from);
  switch (message.kind) {
    case Kind::arrive:
      round.flags_seen &= message.flags;
      round.arrivals[from] = {message.flags, message.purposes, message.proposal};
      return;
    case Kind::ask:
      round.flags_seen &= message.flags;
      return answer(from, message.round, round);
    case Kind::propose:
      // It has excluded all ranks below it, and so has this rank now: it is the coordinator here, too.
      if (from != coordinator() || !round.arrivals.contains(own_)) return;
      round.accepted = message.proposal;
      round.told = from;
      return answer(from, message.round, round);
    case Kind::accept:
      if (message.proposal->coordinator == own_) round.accepted_by.insert(from);
      return;
    default:
      return;
  }
}

/// Says again what the asker may have missed: a message is lost with the process that passes it on.
void Agreement::answer(std::uint32_t asker, std::uint64_t number, Round& round) {
  AgreementMessage out = message(Kind::here, number);
  if (round.accepted && round.accepted->coordinator == asker) {
    out.kind = Kind::accept;
    out.proposal = {asker, {}};
  } else if (asker == coordinator() && round.arrivals.contains(own_)) {
    round.told = asker;
    return send_arrival(number, round);
  } else if (coordinates() && has_proposed(round)) {
    out.kind = Kind::propose;
    out.proposal = round.accepted;
  }
  send(asker, out);
}

void Agreement::merge(const Exclusions& excluded) {
  const std::size_t before = excluded_.size();
  excluded_.insert(excluded.begin(), excluded.end());
  if (excluded_.size() != before) note_new_coordinator();
}

void Agreement::step_out(Exclusion why) {
  if (!excluded_.emplace(own_, why).second) return;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (rank != own_ && !host_.end_of(members_[rank])) send(rank, Kind::out, newest_);
  }
}

// ---- the protocol ----
void Agreement::advance_all() {
  if (own_exclusion()) return;
  for (auto& [number, round] : rounds_) {
    if (!round.decision && round.arrivals.contains(own_)) advance(number, round);
    if (own_exclusion()) return;
  }
}

void Agreement::advance(std::uint64_t number, Round& round) {
  if (coordinates()) return coordinate(number, round);
  if (round.told == coordinator()) return;
  round.told = coordinator();
  send_arrival(number, round);
}

void Agreement::coordinate(std::uint64_t number, Round& round) {
  if (!has_proposed(round)) {
    if (!awaited(round).empty()) return;
    round.accepted = {own_, choose(round)};
    round.proposed = elapsed_;
    AgreementMessage proposal = message(Kind::propose, number);
    proposal.proposal = round.accepted;
    for (const std::uint32_t rank : awaited(round)) send(rank, proposal);
  }
  if (awaited(round).empty()) learn(number, Decision(round.accepted->value), true);
}

/// What the highest coordinator proposed to any of those who are here; else what they give.
Decision Agreement::choose(const Round& round) const {
  std::optional<Proposal> standing = round.accepted;
  Decision out{~std::uint64_t{}, 0, excluded_};
  for (const auto& [rank, arrival] : round.arrivals) {
    if (!is_in(rank)) continue;
    out.flags &= arrival.flags;
    out.purposes |= arrival.purposes;
    const auto& accepted = arrival.accepted;
    if (accepted && (!standing || accepted->coordinator > standing->coordinator)) standing = accepted;
  }
  return standing ? standing->value : out;
}

void Agreement::learn(std::uint64_t number, const Decision& value, bool decided_here) {
  if (number > newest_ + 1 || number + rounds_kept < newest_) return;
  Round& round = rounds_[number];
  if (round.decision || own_exclusion()) return;
  round.decision = value;
  // Those who were left out alive hear of it from everybody, before any rank goes on: the coordinator may end now.
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (rank == own_ || host_.end_of(members_[rank])) continue;
    if (decided_here || value.excluded.contains(rank)) send_decision(rank, number, value);
  }
  merge(value.excluded);
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
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (rank == own_ || !is_in(rank)) continue;
    if (const auto end = host_.end_of(members_[rank]))
      exclude(rank, *end == Liveness::left ? Exclusion::left : Exclusion::dead);
  }
}

/// Asks those who have not been heard of for a while, and gives up those who do not answer.
void Agreement::watch(std::uint64_t number, Round& round) {
  for (const std::uint32_t rank : awaited(round)) {
    const Duration since = std::max({heard_[rank], round.opened, round.proposed, coordinated_since_});
    if (elapsed_ - since > patience_) {
      exclude(rank, Exclusion::silent);
      continue;
    }
    Duration& asked = round.asked.try_emplace(rank, Duration::min()).first->second;
    const Duration latest = std::max(asked, since);
    if (elapsed_ - latest < patience_ / 4) continue;
    asked = elapsed_;
    send(rank, Kind::ask, number);
  }
  find_late(round);
}

/// The coordinator leaves out who has not come. Others leave out a coordinator that has not come itself.
void Agreement::find_late(Round& round) {
  if (!round.waits() || elapsed_ < round.deadline) return;
  // A new coordinator hears only now of those who had come to the one before, and they of it.
  if (elapsed_ < coordinated_since_ + patience_) return;
  if (coordinates()) {
    if (!round.arrivals.contains(own_) || has_proposed(round)) return;
    for (const std::uint32_t rank : awaited(round)) {
      if (!round.arrived.contains(rank)) exclude(rank, Exclusion::late);
    }
    return;
  }
  const bool waits_too_long = elapsed_ >= round.deadline + patience_;
  if (waits_too_long && !round.arrived.contains(coordinator())) exclude(coordinator(), Exclusion::late);
}

}  // namespace amldist::collective
