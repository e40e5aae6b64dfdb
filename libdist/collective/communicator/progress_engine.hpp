// The progress engine of a communicator: the queue of calls that do not block, and the thread that runs them.
//
// There are two kinds. Collectives run one after the other, in the order in which they were submitted, on which the
// ranks agree. Sends and receives of host buffers make progress on their own (pending_messages.hpp). Sends and receives
// of device buffers are calls on a stream; those that are adjacent in the queue run as one.
//
// Either the progress thread drives, or a thread that waits for a request does so instead: that costs no switch of
// threads, and the processor of the waiting thread is free anyway. To wake the progress thread takes longer than a
// short message, so a program that has lately waited soon after it began its calls is left alone for a millisecond.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory/brief_lock.hpp"
#include "base/os/fork_guard.hpp"
#include "base/time/burst_clock.hpp"
#include "collective/communicator/call_runner.hpp"
#include "collective/communicator/context/request.hpp"
#include "collective/communicator/host/host_backend.hpp"
#include "collective/communicator/host/pending_messages.hpp"
#include "collective/communicator/wait_habit.hpp"

namespace amldist::collective {

/// The thread that runs what was submitted.
enum class ProgressBy : std::uint8_t {
  engine,  ///< the progress thread, until a thread waits
  waiter,  ///< the waiting thread, which is known to come at once: waking another one would gain nothing
};

/// One thread of the program at a time submits and waits. The progress thread is started by the first call that needs
/// it, and at most one thread drives progress at any moment: `is_driven_` says so, under the mutex.
class ProgressEngine final : public RequestDriver {
 public:
  /// `has_thread`: whether calls may run on another thread than the program's.
  ProgressEngine(CallRunner& runner, PendingMessages& messages, bool has_thread, const ForkGuard& fork_guard)
      : runner_(runner), messages_(messages), has_thread_(has_thread), fork_guard_(fork_guard) {}
  /// Runs everything to its end, and ends the thread.
  ~ProgressEngine() override;
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// Adds calls that were checked to the queue.
  [[nodiscard]] RequestPtr submit(const calls::Call& call) { return submit(make_request(call), ProgressBy::engine); }
  [[nodiscard]] RequestPtr submit(std::vector<calls::Call> calls, ProgressBy by) {
    return submit(make_request(std::move(calls)), by);
  }
  /// Begins a send or receive of a host buffer: on this thread where that takes no waiting. None: it has ended.
  /// `message`, here and below: HostBackend::message_of() the call. `clock`: read just now. Inlined, as try_at_once()
  /// is: each function that a short message passes costs it a fiftieth.
  [[nodiscard]] [[gnu::always_inline]] RequestPtr submit_message(calls::Call& call, const Message& message,
                                                                 BurstClock& clock) {
    const WaitHabit::CallTime time(habit_, message.bytes > most_short);
    Lock lock(mutex_, std::defer_lock);
    if (is_used_) lock.lock();
    if (!is_driven_ && messages_.try_at_once(call, message, clock.latest())) return {};
    return begin_message(lock, call, message, clock);
  }
  /// Makes a blocking send or receive of a host buffer that takes next to no waiting; false: submit it next.
  [[nodiscard]] bool try_message(calls::Call& call, const Message& message, std::uint64_t now) {
    if (!is_used_) return messages_.try_at_once(call, message, now, Transport::Look::briefly);
    const std::lock_guard lock(mutex_);
    const auto look = is_idle() ? Transport::Look::briefly : Transport::Look::once;
    return !is_driven_ && messages_.try_at_once(call, message, now, look);
  }
  /// Whether anything was submitted and has not ended. Costs nothing until the first submission.
  [[nodiscard]] bool has_work() { return is_used_ && is_busy(); }
  /// Waits until everything that was submitted has ended.
  void drain();
  [[nodiscard]] bool is_here() const noexcept override { return fork_guard_.is_here(); }

 private:
  using Lock = std::unique_lock<BriefLock>;
  class Driving;
  /// Bytes of a message that takes a microsecond at most.
  static constexpr std::size_t most_short = 8UL << 10;

  template <typename Calls>
  [[nodiscard]] RequestPtr make_request(Calls&& calls) {
    is_used_ = true;
    return RequestPtr(new Request(std::forward<Calls>(calls), *this));
  }
  [[nodiscard]] RequestPtr submit(RequestPtr request, ProgressBy by);
  [[nodiscard]] RequestPtr begin_message(Lock& lock, const calls::Call& call, const Message& message,
                                         BurstClock& clock);
  void progress_for(const Request& request, ProgressUntil until) override;
  void run_thread();
  void progress_once(Lock& lock, int& idle);
  /// The same, or waits for the thread that drives, at most until `awaited` is done, if there is one.
  void progress_or_wait(Lock& lock, int& idle, const Request* awaited);
  /// Waits for `has_ended`, a millisecond at most: asks it after each round. Returns its last answer.
  template <typename HasEnded>
  bool await_rounds(Lock& lock, HasEnded has_ended);
  [[nodiscard]] bool is_busy();
  // Needs the lock.
  [[nodiscard]] bool is_idle() const { return queue_.empty() && !is_driven_ && messages_.is_empty(); }
  [[nodiscard]] bool can_run_next() const;
  [[nodiscard]] bool is_queued(const Request& request) const;
  [[nodiscard]] bool is_thread_needed() const;
  [[nodiscard]] bool needs_thread(ProgressBy by);
  [[nodiscard]] bool start_thread();
  void call_thread();
  [[nodiscard]] bool await_work(Lock& lock);
  [[nodiscard]] std::vector<RequestPtr> pop_next();

  CallRunner& runner_;
  PendingMessages& messages_;
  const bool has_thread_;
  const ForkGuard& fork_guard_;
  bool is_used_ = false;  ///< only accessed by the program's thread, like the next
  WaitHabit habit_;

  BriefLock mutex_;                            // guards the members below
  std::condition_variable_any round_ended_;    ///< a round of progress has ended
  int awaiting_round_ = 0;                     ///< threads in await_rounds()
  std::condition_variable_any thread_needed_;  ///< separate, because a wakeup takes the processor from another thread
  std::deque<RequestPtr> queue_;               ///< requests that have not begun
  bool is_driven_ = false;                     ///< a thread is in progress_once()
  std::atomic<bool> has_waiter_ = false;       ///< a thread that waits for a request drives, not the progress thread
  bool flush_messages_ = false;                ///< device messages in the queue must not wait for more of them
  bool is_stopping_ = false;
  bool is_called_ = false;         ///< the progress thread is to begin at once
  bool is_left_alone_ = false;     ///< the program waits soon
  bool is_alert_ = false;          ///< it looks again soon without being woken
  std::uint64_t submissions_ = 0;  ///< how many there were
  std::thread thread_;
};

}  // namespace amldist::collective
