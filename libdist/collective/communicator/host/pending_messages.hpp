// Sends and receives of host buffers that have begun and not ended.
//
// They start at once and make progress independently of the collective that is being run: a rank may do anything
// between the two directions of an exchange.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/time/tick_clock.hpp"
#include "collective/communicator/context/call_observer.hpp"
#include "collective/communicator/context/call_watchdog.hpp"
#include "collective/communicator/context/refused_calls.hpp"
#include "collective/communicator/context/request.hpp"
#include "collective/communicator/host/mpi_progress.hpp"
#include "collective/transport/transport.hpp"

namespace amldist::collective {

/// submit(), is_empty() and interrupt() are thread-safe. The rest is for the one thread that drives progress, which may
/// be another one each time.
class PendingMessages {
 public:
  /// What messages need from their communicator.
  struct Owner {
    CommContext& context;
    SequenceNumbers& numbers;
    RefusedCalls& refused;
    CallObserver& observer;
    MpiProgress& mpi;
    const TickClock& ticks;
  };
  PendingMessages(const Owner& owner, Transport& transport) : owner_(owner), transport_(transport) {}

  /// Passes a send or receive to the thread that drives progress.
  void submit(RequestPtr request);
  /// Whether begin() neither waits nor comes before a message that was submitted earlier.
  [[nodiscard]] bool can_begin(const calls::Call& call) const noexcept {
    return !has_submitted_.load(std::memory_order_acquire) && transport_.posts_at_once(call.root, call.tag);
  }
  /// Makes a message whose transport can move it at once, and nothing else; false: begin it next.
  /// `message`, here and below: HostBackend::message_of() the call. `now`: in the owner's ticks.
  [[nodiscard]] [[gnu::always_inline]] bool try_at_once(calls::Call& call, const Message& message, std::uint64_t now,
                                                        Transport::Look look = Transport::Look::once) {
    if (has_submitted_.load(std::memory_order_acquire) || failed_ || owner_.context.is_lost()) return false;
    const auto direction = call.operation == calls::Operation::send ? Direction::send : Direction::receive;
    const bool may_wait = look != Transport::Look::once;
    if (!transport_.move_at_once(message, direction, look)) return false;
    call.sequence = owner_.numbers.next(call, false);
    if (may_wait) record_at_once(call, message, now);
    else owner_.observer.record_ended(call, now, now);
    return true;
  }
  /// Begins a message on this thread: a short one may have been sent, and its request be complete, on return. No other
  /// request completes meanwhile, so that no function of the program runs.
  void begin(RequestPtr request, const Message& message, std::uint64_t now);
  /// Whether every message that was submitted has ended.
  [[nodiscard]] bool is_empty() const noexcept { return begun_ == ended_.load(std::memory_order_acquire); }
  /// Ends a back_off() on another thread.
  void interrupt() noexcept { transport_.interrupt(); }

  /// Starts what was submitted.
  void take_up();
  /// Moves messages as far as possible, and completes requests; returns whether anything moved.
  bool progress();
  /// After each progress(), `idle` of them without progress: yields the processor, and asks the messages' watchdogs now
  /// and then.
  void back_off(int idle);
  /// Asks the messages' watchdogs, at most once a millisecond: for a program that only tests, without another thread.
  void ask_at_intervals();

 private:
  class OldestOfPeer;

  void record_at_once(const calls::Call& call, const Message& message, std::uint64_t now);
  void post(RequestPtr request, const Message& message, std::uint64_t now);
  void release_ended();
  void ask_watchdogs();
  void announce(const Request& message) const { owner_.context.watch().enter(message.first()); }
  /// Drives MPI only: the caller is driving the messages already.
  [[nodiscard]] calls::Watchdog& watchdog_of(Request& message) {
    auto& own = message.moving().watchdog;
    if (!own) own = std::make_unique<CallWatchdog>(owner_.context, &owner_.mpi);
    return *own;
  }
  void finish(Request& message, std::uint64_t now);
  /// A message that was submitted has ended: the request is complete.
  void count_ended() noexcept { ended_.store(ended_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  void fail(const Error& error);

  const Owner owner_;
  Transport& transport_;
  std::vector<RequestPtr> posted_;  ///< oldest first
  int rounds_ = 0;                  ///< since the watchdogs were asked
  Clock::time_point asked_at_;      ///< by ask_at_intervals()
  std::optional<Error> failed_;     ///< why a message could not be posted: progress() fails with it
  // A locked addition takes as long as all else that a short message counts: each of these has one writer at a time.
  std::uint64_t begun_ = 0;                  ///< submitted so far: by threads that hold the engine's lock
  std::atomic<std::uint64_t> ended_ = 0;     ///< by the thread that drives progress
  std::atomic<bool> has_submitted_ = false;  ///< tells take_up() without taking the lock

  std::mutex mutex_;  // guards the members below
  std::vector<RequestPtr> submitted_;
};

/// While a call waits, other ranks wait for this one's messages; a call may even wait for a rank that waits for one of
/// them.
class CallProgress final : public ProgressHook {
 public:
  CallProgress(PendingMessages& messages, MpiProgress& mpi) : messages_(messages), mpi_(mpi) {}
  void drive() override {
    messages_.take_up();
    messages_.progress();
    mpi_.drive();
  }

 private:
  PendingMessages& messages_;
  MpiProgress& mpi_;
};

}  // namespace amldist::collective
