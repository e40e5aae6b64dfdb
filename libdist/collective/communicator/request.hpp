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

/// A call made without waiting, or several that are made one after the other. Shared by the caller's handle and the
/// thread that runs it.
class Request {
 public:
  /// Somebody wants a request done: it is to be moved, or to be done when this returns or soon after.
  using Pursue = std::function<void(const Request& request, bool to_the_end)>;

  /// Takes the calls, at least one; the only one with copies of the lists of counts that it points to.
  Request(std::vector<Call> calls, Pursue pursue);

  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] const Call& first() const noexcept { return calls_.front(); }
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// The same, and somebody wants it done.
  [[nodiscard]] bool test();
  void wait();
  void complete(Result<void> result);
  /// What the calls came to, an error of the first that had one; only when is_done().
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  std::vector<Call> calls_;
  Pursue pursue_;
  std::vector<std::size_t> lists_[4];
  Result<void> result_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable came_;
};

}  // namespace amldist::collective
