// A call in progress.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/memory/intrusive_ptr.hpp"
#include "base/memory/recycled_memory.hpp"
#include "base/text/result.hpp"
#include "calls/call.hpp"
#include "calls/watchdog.hpp"

namespace amldist::collective {

class Request;

/// How long the progress engine works for the caller.
enum class ProgressUntil : std::uint8_t {
  polled,  ///< one look: the request may be done soon
  done,    ///< the request is done
};

/// Works on requests: the progress engine.
class RequestDriver {
 public:
  RequestDriver() = default;
  virtual ~RequestDriver() = default;
  RequestDriver(const RequestDriver&) = delete;
  RequestDriver& operator=(const RequestDriver&) = delete;
  virtual void progress_for(const Request& request, ProgressUntil until) = 0;
  /// False in a child of the process whose requests it works on.
  [[nodiscard]] virtual bool is_here() const noexcept = 0;
};

/// A call that does not block, or several that run one after the other. Shared by the caller's handle and the thread
/// that runs it. Thread-safe, except that one thread at a time may call wait(), wait_for() and test().
class Request final : public ReferenceCounted {
 public:
  static void* operator new(std::size_t /*bytes*/) { return RecycledMemory<Request>().allocate(1); }
  static void operator delete(void* memory) noexcept {
    RecycledMemory<Request>().deallocate(static_cast<Request*>(memory), 1);
  }
  /// With copies of the lists of counts to which the call points. The driver outlives the request's progress.
  Request(const calls::Call& call, RequestDriver& driver) : first_(call), driver_(driver) {
    if (call.lists != nullptr) copy_lists();
  }
  /// Several calls without lists, at least one.
  Request(std::vector<calls::Call> calls, RequestDriver& driver);

  [[nodiscard]] std::span<const calls::Call> calls() const noexcept {
    return copies_ == nullptr || copies_->calls.empty() ? std::span(&first_, 1) : std::span(copies_->calls);
  }
  [[nodiscard]] const calls::Call& first() const noexcept { return first_; }
  /// What the thread that moves a message keeps with it, for itself alone.
  struct Moving {
    std::unique_ptr<calls::Watchdog> watchdog;  ///< made when it is first asked
    std::uint64_t ticket = 0;                   ///< the observer's
    std::size_t left = 0;                       ///< as Transport::post() counts it
  };
  [[nodiscard]] Moving& moving() noexcept { return moving_; }
  /// The number of a message, for the thread that runs it.
  void set_sequence(std::uint64_t sequence) noexcept { first_.sequence = sequence; }
  /// Also in its own completion: only other threads wait for the end of that.
  [[nodiscard]] bool is_done() const noexcept {
    if ((state_.load(std::memory_order_acquire) & done) != 0) return true;
    const std::thread::id completing = completing_.load(std::memory_order_relaxed);
    return completing != std::thread::id() && completing == std::this_thread::get_id();
  }
  /// For the caller alone, to find what the request belongs to.
  [[nodiscard]] const void* origin() const noexcept { return origin_; }
  void set_origin(const void* origin) noexcept { origin_ = origin; }
  /// False in a child of the process that began it, in which nobody may work on it: then only the members above may be
  /// called.
  [[nodiscard]] bool is_here() const noexcept { return is_done() || driver_.is_here(); }
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
  void complete(Result<void> result) {
    result_ = std::move(result);
    complete();
  }
  /// With the result that it has, which is success at first.
  void complete() {
    // Without the lock if nobody watches.
    std::uint8_t unwatched = 0;
    if (!state_.compare_exchange_strong(unwatched, done, std::memory_order_acq_rel)) complete_watched();
  }
  /// The result of the calls, or the first error; only valid if is_done().
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  static constexpr std::uint8_t done = 1;
  static constexpr std::uint8_t watched = 2;  ///< a thread sleeps until it is done, or a completion was given

  struct Sleep;
  /// What most requests do not need.
  struct Copies {
    std::vector<calls::Call> calls;  ///< all of them, if there is more than one
    std::optional<calls::OwnedLists> lists;
  };
  [[nodiscard]] Sleep& sleep() const noexcept;
  void copy_lists();
  void complete_watched();
  void be_done();  ///< needs the lock

  calls::Call first_;
  RequestDriver& driver_;
  const void* origin_ = nullptr;
  Moving moving_;
  std::unique_ptr<Copies> copies_;
  Result<void> result_;
  std::atomic<std::uint8_t> state_ = 0;
  std::atomic<std::thread::id> completing_;  ///< the thread that is in completion_
  bool has_completion_ = false;              ///< needs the lock, like the next
  Completion completion_;
};

using RequestPtr = IntrusivePtr<Request>;

}  // namespace amldist::collective
