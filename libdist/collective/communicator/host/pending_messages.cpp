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
  [[nodiscard]] Result<void> keep_waiting(int rank) override { return announced(rank).watchdog->keep_waiting(rank); }
  [[nodiscard]] Error differs(int rank) override { return announced(rank).watchdog->differs(rank); }
  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    return announced(rank).watchdog->lost(rank, what);
  }
  [[nodiscard]] Clock::time_point deadline() const noexcept override {
    return messages_.posted_.front()->watchdog->deadline();
  }

 private:
  [[nodiscard]] Pending& announced(int rank) const {
    const auto& posted = messages_.posted_;
    const auto found = std::ranges::find_if(posted, [&](const auto& each) { return each->call.root == rank; });
    Pending& message = found != posted.end() ? **found : *posted.front();
    messages_.announce(message);
    return message;
  }

  PendingMessages& messages_;
};

std::unique_ptr<PendingMessages::Pending> PendingMessages::make_pending(std::shared_ptr<Request> request) {
  std::unique_ptr<Pending> out;
  if (spare_.empty()) {
    out = std::make_unique<Pending>();
  } else {
    out = std::move(spare_.back());
    spare_.pop_back();
  }
  out->call = request->first();
  out->request = std::move(request);
  out->watchdog.emplace(owner_.context, &owner_.mpi);
  out->call.sequence = owner_.numbers.next(out->call, false);
  out->ticket = owner_.observer.begin(out->call, owner_.ticks.now());
  return out;
}

void PendingMessages::submit(std::shared_ptr<Request> request) {
  unfinished_.fetch_add(1, std::memory_order_acq_rel);
  const std::lock_guard lock(mutex_);
  submitted_.push_back(std::move(request));
  has_submitted_.store(true, std::memory_order_release);
}

void PendingMessages::take_up() {
  if (!has_submitted_.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<Request>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(submitted_);
    has_submitted_.store(false, std::memory_order_relaxed);
  }
  for (auto& request : taken) post(std::move(request));
}

void PendingMessages::begin(std::shared_ptr<Request> request) {
  unfinished_.fetch_add(1, std::memory_order_acq_rel);
  post(std::move(request));
}

void PendingMessages::post(std::shared_ptr<Request> request) {
  if (owner_.context.is_lost()) return complete(*request, owner_.refused.refuse(request->first(), owner_.ticks.now()));
  posted_.push_back(make_pending(std::move(request)));
  if (failed_) return;
  Pending& message = *posted_.back();
  const auto direction = message.call.operation == calls::Operation::send ? Direction::send : Direction::receive;
  auto posted = transport_.post(HostBackend::message_of(message.call), direction, message.left, *message.watchdog);
  if (!posted) failed_ = posted.error();
  if (!posted || message.left != 0) return;
  finish(message, {});
  spare_.push_back(std::move(posted_.back()));
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
  for (auto& message : posted_) {
    if (message->left != 0) {
      posted_[kept++].swap(message);
      continue;
    }
    finish(*message, {});
    spare_.push_back(std::move(message));
  }
  posted_.resize(kept);
  if (posted_.empty()) owner_.context.watch().leave_message();
}

void PendingMessages::back_off(int idle) {
  if (!transport_.rest(idle)) return;
  // The oldest comes last: it is the one that is reported to other ranks.
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 does not compile std::views::reverse
  for (auto each = posted_.rbegin(); each != posted_.rend(); ++each) {
    Pending& message = **each;
    announce(message);
    if (auto status = message.watchdog->keep_waiting(message.call.root); !status) return fail(status.error());
  }
}

void PendingMessages::finish(Pending& message, const Result<void>& result) {
  owner_.observer.end(message.ticket, result);
  complete(*std::exchange(message.request, nullptr), result);
}

void PendingMessages::complete(Request& request, const Result<void>& result) {
  request.complete(result);
  unfinished_.fetch_sub(1, std::memory_order_acq_rel);
}

void PendingMessages::fail(const Error& error) {
  failed_.reset();
  transport_.give_up();
  owner_.context.give_up(error);
  for (const auto& message : std::exchange(posted_, {})) finish(*message, error);
  owner_.context.watch().leave_message();
}

}  // namespace amldist::collective
