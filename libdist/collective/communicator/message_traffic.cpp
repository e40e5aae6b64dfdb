#include "collective/communicator/message_traffic.hpp"

#include <algorithm>
#include <ranges>

namespace amldist::collective {

/// Speaks for the message with the peer that something is wrong with: the one that the others are told of.
class Communicator::MessageTraffic::Witness final : public Watchdog {
 public:
  explicit Witness(MessageTraffic& traffic) : traffic_(traffic) {}
  [[nodiscard]] Result<void> keep_waiting(int rank) override { return announced(rank).watchdog.keep_waiting(rank); }
  [[nodiscard]] Error differs(int rank) override { return announced(rank).watchdog.differs(rank); }
  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    return announced(rank).watchdog.lost(rank, what);
  }
  [[nodiscard]] Clock::time_point deadline() const noexcept override {
    return traffic_.under_way_.front()->watchdog.deadline();
  }

 private:
  [[nodiscard]] UnderWay& announced(int rank) const {
    const auto found =
        std::ranges::find_if(traffic_.under_way_, [&](const auto& each) { return each->call.root == rank; });
    UnderWay& message = found != traffic_.under_way_.end() ? **found : *traffic_.under_way_.front();
    traffic_.announce(message);
    return message;
  }

  MessageTraffic& traffic_;
};

Communicator::MessageTraffic::UnderWay::UnderWay(Communicator& owner, std::shared_ptr<Request> begun)
    : request(std::move(begun)), call(request->first()), watchdog(owner, CallWatchdog::Moves::only_mpi), ticket(0) {
  call.sequence = owner.number_message(call, false);
  ticket = owner.record(call, owner.process_->ticks.now());
}

void Communicator::MessageTraffic::post(std::shared_ptr<Request> request) {
  if (owner_.watch_->is_lost()) return request->complete(owner_.refuse(request->first()));
  under_way_.push_back(std::make_unique<UnderWay>(owner_, std::move(request)));
  UnderWay& message = *under_way_.back();
  const auto direction = message.call.operation == Operation::send ? Direction::send : Direction::receive;
  auto posted = transport_.post(HostBackend::message_of(message.call), direction, message.left, message.watchdog);
  if (!posted) fail(posted.error());
}

bool Communicator::MessageTraffic::progress() {
  if (under_way_.empty()) return false;
  Witness witness(*this);
  const auto moved = transport_.progress(witness);
  if (!moved) {
    fail(moved.error());
    return true;
  }
  if (!*moved) return false;
  for (auto& message : under_way_) {
    if (message->left == 0) finish(*message, {});
  }
  std::erase_if(under_way_, [](const auto& message) { return message->left == 0; });
  if (under_way_.empty()) owner_.watch_->leave();
  return true;
}

void Communicator::MessageTraffic::rest(int idle) {
  if (!transport_.rest(idle)) return;
  // What others are told of this rank is the oldest.
  for (const auto& message : std::views::reverse(under_way_)) {
    announce(*message);
    if (auto going_on = message->watchdog.keep_waiting(message->call.root); !going_on) return fail(going_on.error());
  }
}

void Communicator::MessageTraffic::finish(UnderWay& message, const Result<void>& result) {
  owner_.close_record(message.ticket, result);
  message.request->complete(result);
}

void Communicator::MessageTraffic::fail(const Error& error) {
  transport_.give_up();
  if (!owner_.watch_->is_lost()) owner_.process_->channel->abort(owner_.watch_, error.message);
  for (const auto& message : std::exchange(under_way_, {})) finish(*message, error);
  owner_.watch_->leave();
}

}  // namespace amldist::collective
