// The watchdog of one call: the deadline, the ranks that have ended, and the diagnosis of others.
#pragma once

#include <atomic>
#include <string_view>
#include <vector>

#include "base/time/observed_time.hpp"
#include "collective/communicator/context/comm_context.hpp"
#include "collective/communicator/context/interrupt.hpp"
#include "collective/communicator/context/progress_hook.hpp"

namespace amldist::collective {

/// One per call, used by the thread that runs the call. The deadline counts from the first look, a few microseconds
/// after the call began: calls that do not wait never read the clock. Only time in which this process could look
/// counts: a job that is stopped and continued (scontrol suspend) keeps the rest of its time.
class CallWatchdog final : public calls::Watchdog {
 public:
  /// `hook` is driven while the call waits, unless it is nullptr. `is_awaited`: whether a thread of the program waits
  /// for the call; nullptr: one does.
  explicit CallWatchdog(CommContext& context, ProgressHook* hook = nullptr,
                        const std::atomic<bool>* is_awaited = nullptr)
      : context_(context), hook_(hook), is_awaited_(is_awaited) {}

  [[nodiscard]] Result<void> keep_waiting(int rank) override;
  /// keep_waiting() for a thread that watches a call that another thread began: it drives no hook, and other ranks are
  /// not told that this one waits for `rank`.
  [[nodiscard]] Result<void> check(int rank);
  [[nodiscard]] Error differs(int rank) override;
  [[nodiscard]] Error lost(int rank, std::string_view what) override;
  void troubled(int rank, std::string_view why) override;
  [[nodiscard]] Clock::time_point deadline() const noexcept override;
  [[nodiscard]] bool is_unawaited() const noexcept override {
    return is_awaited_ != nullptr && !is_awaited_->load(std::memory_order_relaxed);
  }

  /// A transport knows only that a connection broke, or that it was aborted; the control channel knows which process
  /// has ended. Turns such a result into one that names the rank, and returns others unchanged.
  [[nodiscard]] Result<void> with_cause(Result<void> result);

 private:
  struct Suspect {
    int rank = 0;
    Clock::time_point since;
  };

  [[nodiscard]] Error find_out(const world::DiagnosisTrigger& trigger);
  [[nodiscard]] bool is_gone_for_good(int rank);
  [[nodiscard]] bool is_gone(int rank) const;
  [[nodiscard]] bool is_late();

  CommContext& context_;
  ProgressHook* const hook_;
  const std::atomic<bool>* const is_awaited_;
  mutable Clock::time_point deadline_;
  ObservedTime observed_{milliseconds(10), milliseconds(500)};  ///< transports look every 10 ms and more often
  std::vector<Suspect> suspects_;
  InterruptCheck interrupts_;
};

}  // namespace amldist::collective
