#include "collective/communicator/host/pending_messages.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "collective/communicator/host/host_backend.hpp"

namespace amldist::collective {

/// The transport asks one watchdog about all messages: it passes each question to the watchdog of the oldest message
/// with the rank in question, which is also the message that is reported to other ranks.
class PendingMessages::OldestOfPeer final : public calls::Watchdog {
 public:
  explicit OldestOfPeer(PendingMessages& messages) : messages_(messages) {}
  [[nodiscard]] Result<void> keep_waiting(int rank) override { return watchdog(rank).keep_waiting(rank); }
  [[nodiscard]] Error differs(int rank) override { return watchdog(rank).differs(rank); }
  [[nodiscard]] Error lost(int rank, std::string_view what) override { return watchdog(rank).lost(rank, what); }
  void troubled(int rank, std::string_view why) override { watchdog(rank).troubled(rank, why); }
  [[nodiscard]] Clock::time_point deadline() const noexcept override {
    return messages_.watchdog_of(*messages_.posted_.front()).deadline();
  }

 private:
  /// That of the oldest message with a rank, which becomes the one that is reported.
  [[nodiscard]] calls::Watchdog& watchdog(int rank) const {
    const auto& posted = messages_.posted_;
    const auto found = std::ranges::find_if(posted, [&](const auto& each) { return each->first().root == rank; });
    Request& message = found != posted.end() ? **found : *posted.front();
    messages_.announce(message);
    return messages_.watchdog_of(message);
  }

  PendingMessages& messages_;
};

void PendingMessages::submit(RequestPtr request) {
  ++begun_;
  const std::lock_guard lock(mutex_);
  submitted_.push_back(std::move(request));
  has_submitted_.store(true, std::memory_order_release);
}

void PendingMessages::take_up() {
  if (!has_submitted_.load(std::memory_order_acquire)) return;
  std::vector<RequestPtr> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);
    has_submitted_.store(false, std::memory_order_relaxed);
  }
  const std::uint64_t now = owner_.ticks.now();
  for (auto& request : taken) {
    const Message message = HostBackend::message_of(request->first());
    post(std::move(request), message, now);
  }
}

/// Records a message that was moved at once, but for which the transport may have waited first.
void PendingMessages::record_at_once(const calls::Call& call, const Message& message, std::uint64_t now) {
  const auto looks = transport_.vain_looks(message);
  const bool has_waited = looks && looks->first != 0;
  const std::uint64_t began = has_waited ? looks->first : now;  // `now` may be less exact
  owner_.observer.record_ended(call, began, looks ? looks->end(began, owner_.ticks) : owner_.ticks.now());
}

void PendingMessages::begin(RequestPtr request, const Message& message, std::uint64_t now) {
  ++begun_;
  post(std::move(request), message, now);
}

void PendingMessages::post(RequestPtr request, const Message& message, std::uint64_t now) {
  if (owner_.context.is_lost()) {
    request->complete(owner_.refused.refuse(request->first(), now));
    return count_ended();
  }
  Request& own = *request;
  own.set_sequence(owner_.numbers.next(own.first(), false));
  own.moving().ticket = owner_.observer.begin(own.first(), now);
  posted_.push_back(std::move(request));
  if (failed_) return;
  const auto direction = own.first().operation == calls::Operation::send ? Direction::send : Direction::receive;
  OldestOfPeer watchdog(*this);
  auto posted = transport_.post(message, direction, own.moving().left, watchdog);
  if (!posted) failed_ = posted.error();
  if (!posted || own.moving().left != 0) return;
  finish(own, now);
  posted_.pop_back();
}

bool PendingMessages::progress() {
  if (posted_.empty()) return false;
  if (failed_) {
    fail(*std::exchange(failed_, std::nullopt));
    return true;
  }
  OldestOfPeer watchdog(*this);
  const auto moved = transport_.progress(watchdog);
  if (!moved) {
    fail(moved.error());
    return true;
  }
  if (*moved) release_ended();
  return *moved;
}

/// Completes the requests of messages that have ended.
void PendingMessages::release_ended() {
  std::size_t kept = 0;
  const std::uint64_t now = owner_.ticks.now();
  for (auto& message : posted_) {
    if (message->moving().left != 0) posted_[kept++].swap(message);
    else finish(*message, now);
  }
  posted_.resize(kept);
  if (posted_.empty()) owner_.context.watch().leave_message();
}

void PendingMessages::back_off(int idle) {
  const bool asks = idle > 0 && transport_.rest(idle);
  if (++rounds_ >= Transport::most_rounds_unasked || asks) ask_watchdogs();
}

void PendingMessages::ask_at_intervals() {
  constexpr auto interval = std::chrono::milliseconds(1);
  const auto now = Clock::now();
  if (now - asked_at_ < interval) return;
  asked_at_ = now;
  ask_watchdogs();
}

void PendingMessages::ask_watchdogs() {
  rounds_ = 0;
  // The oldest comes last: it is the one that is reported to other ranks.
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 does not compile std::views::reverse
  for (auto each = posted_.rbegin(); each != posted_.rend(); ++each) {
    Request& message = **each;
    announce(message);
    if (auto status = watchdog_of(message).keep_waiting(message.first().root); !status) return fail(status.error());
  }
}

void PendingMessages::finish(Request& message, std::uint64_t now) {
  owner_.observer.complete_at(message.moving().ticket, now);
  message.moving().watchdog.reset();
  message.complete();
  count_ended();
}

void PendingMessages::fail(const Error& error) {
  failed_.reset();
  transport_.give_up();
  owner_.context.give_up(error);
  for (const auto& message : std::exchange(posted_, {})) {
    owner_.observer.fail(message->moving().ticket, error);
    message->moving().watchdog.reset();
    message->complete(error);
    count_ended();
  }
  owner_.context.watch().leave_message();
}

}  // namespace amldist::collective
