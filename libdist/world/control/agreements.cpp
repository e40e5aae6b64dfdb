#include "world/control/agreements.hpp"

#include <algorithm>
#include <utility>

namespace amldist::world {

// ---- ticket ----
AgreementOutcome AgreementTicket::wait() {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [this] { return outcome_.has_value(); });
  return *outcome_;
}

void AgreementTicket::complete(AgreementOutcome outcome) {
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  completed_.notify_all();
}

// ---- agreements ----
Agreements::OfCommunicator& Agreements::of(const std::shared_ptr<CommWatch>& watch) {
  const auto found = agreements_.find(watch->id());
  if (found != agreements_.end()) return found->second;
  auto tree = std::make_shared<const CommTree>(host_.table(), watch->members());
  Agreement fresh(host_, watch->id(), watch->members(), std::move(tree), watch->rank());
  return agreements_.emplace(watch->id(), OfCommunicator{watch, std::move(fresh), nullptr}).first->second;
}

void Agreements::open(const std::shared_ptr<CommWatch>& watch, const std::shared_ptr<AgreementTicket>& ticket,
                      const Agreement::Limits& limits) {
  OfCommunicator& one = of(watch);
  if (watch->is_lost()) one.agreement.set_lost();
  ticket->excluded_before_ = one.agreement.excluded().size();
  one.ticket = ticket;
  one.agreement.open(ticket->round(), Clock::now(), limits);
  tell(one);
}

void Agreements::arrive(const CommWatch& watch, const AgreementTicket& ticket, std::uint64_t flags,
                        std::uint64_t purposes) {
  const auto found = agreements_.find(watch.id());
  if (found == agreements_.end()) return;
  found->second.agreement.arrive(ticket.round(), flags, purposes);
  tell(found->second);
}

void Agreements::take(std::uint32_t world_rank, Frame& frame) {
  const auto message = read_agreement_message(frame);
  if (!message) return;
  const auto watch = find_(message->communicator);
  if (!watch) {  // finalized: the sender need not wait for this rank
    using Kind = AgreementMessage::Kind;
    if (message->kind != Kind::ask && message->kind != Kind::arrive && message->kind != Kind::propose) return;
    AgreementMessage out;
    out.communicator = message->communicator;
    out.round = message->round;
    out.kind = Kind::out;
    return host_.send_to(world_rank, out.to_frame());
  }
  const auto& members = watch->members();
  const auto from = std::ranges::find(members, world_rank);
  if (from == members.end()) return;
  OfCommunicator& one = of(watch);
  // The diagnosis may have ended with the rank that was telling it to all. Whoever is in an agreement hears of it
  // there, or is about to: the round before has told it who is lost.
  const Decision* const before = one.agreement.decision(message->round - 1);
  const bool knows = one.ticket || (before != nullptr && !before->excluded.empty());
  if (message->is_lost && !knows) watch->give_diagnosis({Errc::aborted, "the communicator has failed on another rank"});
  one.agreement.take(static_cast<std::uint32_t>(from - members.begin()), *message);
  tell(one);
}

/// Tells the calling thread what has become of its round.
void Agreements::tell(OfCommunicator& one) {
  if (!one.ticket) return;
  AgreementTicket& ticket = *one.ticket;
  const Decision* const decision = one.agreement.decision(ticket.round());
  const auto own = one.agreement.own_exclusion();
  const bool is_lacking = (one.agreement.flags_so_far(ticket.round()) & ticket.needed_) != ticket.needed_;
  if (own || decision != nullptr || is_lacking || one.agreement.excluded().size() > ticket.excluded_before_)
    ticket.hopeless_.store(true, std::memory_order_release);
  if (decision != nullptr && !decision->excluded.contains(one.watch->rank())) {
    ticket.complete({std::nullopt, *decision});
  } else if (own) {
    ticket.complete({own, {}});
  } else {
    return;
  }
  one.ticket.reset();
}

void Agreements::poll() {
  std::erase_if(agreements_, [this](const auto& each) { return !each.second.ticket && !find_(each.first); });
  for (auto& [id, one] : agreements_) {
    if (!one.ticket) continue;
    if (one.watch->is_lost()) one.agreement.set_lost();
    Exclusions silent;
    for (const std::uint32_t rank : one.watch->silent_ranks()) silent.emplace(rank, Exclusion::silent);
    one.agreement.exclude(silent);
    one.agreement.poll(Clock::now());
    tell(one);
  }
}

Clock::time_point Agreements::next_poll() const {
  auto next = Clock::time_point::max();
  for (const auto& [id, one] : agreements_) {
    if (one.ticket) next = std::min(next, one.agreement.next_poll());
  }
  return next;
}

}  // namespace amldist::world
