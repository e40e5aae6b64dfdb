// A call in progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "collective/calls/call.hpp"
#include "core/result.hpp"

namespace amldist::collective {

/// How long the progress engine works for whoever asks.
enum class ProgressUntil : std::uint8_t {
  polled,  ///< one look: the request may be done soon
  done,    ///< the request is done
};

/// A call that does not block, or several that run one after the other. Shared by the caller's handle and the thread
/// that runs it. Thread-safe, but for wait() and test(), which one thread at a time may call.
class Request {
 public:
  /// Asks the progress engine to work on a request.
  using Progress = std::function<void(const Request& request, ProgressUntil until)>;

  /// Takes the calls, at least one; where it is only one, with copies of the lists of counts that it points to.
  Request(std::vector<Call> calls, Progress progress);

  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] const Call& first() const noexcept { return calls_.front(); }
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Makes progress; whether the request is done.
  [[nodiscard]] bool test();
  /// Makes progress until the request is done.
  void wait();
  void complete(Result<void> result);
  /// The result of the calls, or the error of the first that failed; only when is_done().
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  std::vector<Call> calls_;
  Progress progress_;
  std::vector<std::size_t> lists_[4];
  Result<void> result_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable completed_;
};

}  // namespace amldist::collective
