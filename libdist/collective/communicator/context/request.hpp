// A call in progress.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/text/result.hpp"
#include "calls/call.hpp"

namespace amldist::collective {

/// How long the progress engine works for the caller.
enum class ProgressUntil : std::uint8_t {
  polled,  ///< one look: the request may be done soon
  done,    ///< the request is done
};

/// A call that does not block, or several that run one after the other. Shared by the caller's handle and the thread
/// that runs it. Thread-safe, except that one thread at a time may call wait(), wait_for() and test().
class Request {
 public:
  /// Asks the progress engine to work on a request.
  using Progress = std::function<void(const Request& request, ProgressUntil until)>;

  /// Takes the calls, at least one; a single call with copies of the lists of counts to which it points.
  Request(std::vector<calls::Call> calls, Progress progress);

  [[nodiscard]] const std::vector<calls::Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] const calls::Call& first() const noexcept { return calls_.front(); }
  /// Also in its own completion: only other threads wait for the end of that.
  [[nodiscard]] bool is_done() const noexcept {
    return done_.load(std::memory_order_acquire) ||
           completing_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  /// Makes progress; returns whether the request is done.
  [[nodiscard]] bool test();
  /// Makes progress until the request is done.
  void wait();
  /// Leaves progress to the progress thread, and sleeps until the request is done or the time is up; returns whether it
  /// is done. Without a progress thread it makes progress itself.
  [[nodiscard]] bool wait_for(std::chrono::milliseconds most);
  /// Called once with the result, by the thread that completes the request; at once, by this one, if it is done.
  using Completion = std::function<void(const Result<void>& result)>;
  /// At most one for each request; false: it has one already.
  [[nodiscard]] bool on_complete(Completion completion);
  void complete(Result<void> result);
  /// The result of the calls, or the first error; only valid if is_done().
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  void be_done();  ///< needs the lock

  std::vector<calls::Call> calls_;
  Progress progress_;
  std::vector<std::size_t> lists_[4];
  Result<void> result_;
  std::atomic<bool> done_ = false;
  std::atomic<std::thread::id> completing_;  ///< the thread that is in completion_
  bool has_completion_ = false;              ///< guarded by mutex_, like the next
  Completion completion_;
  std::mutex mutex_;
  std::condition_variable completed_;
};

}  // namespace amldist::collective
