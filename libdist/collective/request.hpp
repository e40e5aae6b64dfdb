// A call in progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "collective/call.hpp"
#include "core/result.hpp"

namespace amldist::collective {

/// A call made without waiting. Shared by the caller's handle and the thread that runs it.
class Request {
 public:
  /// Somebody wants a request done: it is to be moved, or to be done when this returns or soon after.
  using Pursue = std::function<void(const Request& request, bool to_the_end)>;

  /// Takes the call with copies of the lists of counts that it points to.
  Request(const Call& call, Pursue pursue);

  [[nodiscard]] const Call& call() const noexcept { return call_; }
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// The same, and somebody wants it done.
  [[nodiscard]] bool test();
  void wait();
  void complete(Result<void> result);
  /// What the call came to; only when is_done().
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  Call call_;
  Pursue pursue_;
  std::vector<std::size_t> lists_[4];
  Result<void> result_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::condition_variable came_;
};

}  // namespace amldist::collective
