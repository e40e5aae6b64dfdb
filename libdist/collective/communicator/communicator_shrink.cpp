// Continuing after a loss: what the remaining ranks agree on, and the communicator that they make.
#include <algorithm>

#include "base/text/text.hpp"
#include "collective/communicator/communicator.hpp"
#include "collective/communicator/split_requests.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// The purpose of a round, by which ranks notice that they call different functions.
constexpr std::uint64_t to_agree = 1;
constexpr std::uint64_t to_shrink = 2;

/// What a rank reports in a round of a shrink.
constexpr std::uint64_t built = 1;    ///< the communicator of the previous round's survivors exists
constexpr std::uint64_t willing = 2;  ///< its deadline has not passed

/// How long the survivors may take to build their communicator at the first attempt; later attempts get more time.
constexpr milliseconds building_time(10000);

/// Stops the building of a communicator as soon as it cannot succeed. Other ranks are told in the next round.
class BuildingWatchdog final : public calls::Watchdog {
 public:
  BuildingWatchdog(const world::ControlChannel& channel, const std::vector<std::uint32_t>& members,
                   const world::AgreementTicket& ticket, milliseconds limit)
      : channel_(channel), members_(members), ticket_(ticket), deadline_(Clock::now() + limit) {}

  [[nodiscard]] Result<void> keep_waiting(int /*rank*/) override {
    const auto is_gone = [this](std::uint32_t member) { return channel_.is_gone(member); };
    if (ticket_.is_hopeless()) return failed("another rank was lost");
    if (channel_.is_anyone_gone() && std::ranges::any_of(members_, is_gone)) return failed("another rank has ended");
    if (Clock::now() >= deadline_) return failed("the time limit has passed");
    return {};
  }
  [[nodiscard]] Error differs(int /*rank*/) override { return failed("calls differ"); }
  [[nodiscard]] Error lost(int /*rank*/, std::string_view what) override { return failed(what); }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return deadline_; }

 private:
  [[nodiscard]] static Error failed(std::string_view why) { return {Errc::peer, std::string(why)}; }

  const world::ControlChannel& channel_;
  const std::vector<std::uint32_t>& members_;
  const world::AgreementTicket& ticket_;
  const Clock::time_point deadline_;
};

}  // namespace

// ---- agreement ----
Error Communicator::exclusion_error(world::Exclusion why) const {
  const std::string_view reason = why == world::Exclusion::silent ? "it did not answer them in time (was it stopped?)"
                                  : why == world::Exclusion::late ? "it did not come before the deadline"
                                                                  : "they considered its process ended";
  return {Errc::aborted,
          concat({context_.name_of(context_.rank()), " is excluded from the communicator: the other ranks ",
                  "have continued without it, because ", reason})};
}

Communicator::AgreementTicketPtr Communicator::open_agreement(std::uint64_t needed, milliseconds late_after) {
  auto ticket = std::make_shared<world::AgreementTicket>(++agreements_, needed);
  context_.channel().open_agreement(context_.shared_watch(), ticket, context_.timeout(), late_after);
  return ticket;
}

Result<world::AgreementOutcome> Communicator::join_agreement(const AgreementTicketPtr& ticket, std::uint64_t flags,
                                                             std::uint64_t purpose) {
  auto outcome = context_.channel().agree(context_.shared_watch(), ticket, flags, purpose);
  if (outcome.own_exclusion) {
    const Error error = exclusion_error(*outcome.own_exclusion);
    context_.watch().give_diagnosis(error);
    return error;
  }
  // A loss reaches one rank in its last call and another one a call later: one calls shrink while the other calls
  // agree. The loss that agree returns makes the other one call shrink, too.
  const bool is_loss = !outcome.decision.excluded.empty();
  if (is_loss || outcome.decision.purposes == purpose) return outcome;
  return Error{Errc::mismatch, "some ranks called amldist_agree and others amldist_shrink: all must call the same"};
}

Result<Communicator::Agreed> Communicator::agree(std::uint64_t flags) {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "agree inside a group"};
  const auto outcome = join_agreement(open_agreement(0, context_.timeout()), flags, to_agree);
  if (!outcome) return outcome.error();
  const world::Exclusions& excluded = outcome->decision.excluded;
  Agreed out = {outcome->decision.flags, std::nullopt};
  if (excluded.empty()) return out;
  out.lost = Error{Errc::peer, describe(excluded, [this](std::uint32_t rank) { return context_.name_of(rank); })};
  std::uint32_t lowest = 0;
  while (excluded.contains(lowest)) ++lowest;
  const world::ErrorSubject subject = {static_cast<std::int32_t>(excluded.begin()->first), calls::Operation::none, 0};
  if (context_.watch().give_diagnosis(*out.lost, {}, subject) && lowest == context_.rank())
    context_.channel().tell(out.lost->message);
  return out;
}

// ---- shrink ----
/// In rounds: which ranks remain? They build a communicator. Did all of them succeed, and do all still remain? The
/// answer of the last round is the same everywhere, so that all ranks have the same communicator, or try again with the
/// remaining ones.
Result<std::unique_ptr<Communicator>> Communicator::shrink() {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "shrink inside a group"};
  engine_->drain();
  const auto deadline = Clock::now() + context_.timeout();
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()), milliseconds(0));
  };
  auto ticket = open_agreement(0, left());
  std::unique_ptr<Communicator> out;
  world::Exclusions excluded;
  for (milliseconds limit = building_time;; limit = std::min(2 * limit, building_time + context_.timeout())) {
    const std::uint64_t own = (out ? built : 0) | (left().count() > 0 ? willing : 0);
    const auto outcome = join_agreement(ticket, own, to_shrink);
    if (!outcome) return outcome.error();
    const world::Decision& decision = outcome->decision;
    const bool all_shrink = decision.purposes == to_shrink;  // the flags of agree are the program's
    if (all_shrink && (decision.flags & built) != 0 && decision.excluded == excluded) break;
    if (all_shrink && (decision.flags & willing) == 0)
      return Error{Errc::timeout, "the remaining ranks did not build the new communicator before the deadline"};
    out.reset();
    excluded = decision.excluded;
    const std::uint64_t round = ticket->round();
    ticket = open_agreement(built, limit * 2);
    out = build_survivors(excluded, round, *ticket, std::min(limit, left()));
  }
  context_.watch().give_diagnosis(
      {Errc::aborted, "the communicator was shrunk: use the one that amldist_shrink() made"});
  hand_over_to(*out);
  return out;
}

/// nullptr if it could not be built.
std::unique_ptr<Communicator> Communicator::build_survivors(const world::Exclusions& excluded, std::uint64_t round,
                                                            const world::AgreementTicket& ticket, milliseconds limit) {
  std::vector<std::uint32_t> members;
  std::uint32_t own_rank = 0;
  for (std::uint32_t rank = 0; rank < context_.size(); ++rank) {
    if (rank == context_.rank()) own_rank = static_cast<std::uint32_t>(members.size());
    if (!excluded.contains(rank)) members.push_back(context_.watch().members()[rank]);
  }
  const std::uint64_t id = shrink_id(context_.watch().id(), round);
  std::unique_ptr<Communicator> out(
      new Communicator(process_, std::make_shared<world::CommWatch>(id, members, own_rank), context_.timeout()));
  out->is_shrunk_ = true;
  calls::Call call;
  call.operation = calls::Operation::split;
  BuildingWatchdog watchdog(*process_->channel, members, ticket, limit);
  return out->build(call, watchdog) ? std::move(out) : nullptr;
}

/// The remaining ranks are the world from now on.
void Communicator::hand_over_to(Communicator& heir) {
  heir.recorder_.add(heir.context_.watch(), {}, recorder_.communicator());
  heir.is_world_ = is_world_;
  heir.keeps_recorder_ = std::exchange(keeps_recorder_, false);
}

}  // namespace amldist::collective
