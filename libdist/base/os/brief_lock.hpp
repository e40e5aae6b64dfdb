// A lock for what takes about a microsecond, at most a few milliseconds: taking it is one locked instruction, returning
// it none. A std::mutex takes two, and 60 instructions, which is a tenth of a short message.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace amldist {

/// As std::mutex; wait with std::condition_variable_any. A thread that finds it taken yields its processor, and soon
/// sleeps for short times, so that the thread that has it may run even if that one has a lower priority.
class BriefLock {
 public:
  BriefLock() = default;
  BriefLock(const BriefLock&) = delete;
  BriefLock& operator=(const BriefLock&) = delete;

  void lock() noexcept {
    if (!try_lock()) await();
  }
  [[nodiscard]] bool try_lock() noexcept { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void await() noexcept {
    constexpr int yields = 64;
    constexpr std::chrono::microseconds pause(50);
    int looks = 0;
    do {
      if (++looks < yields) std::this_thread::yield();
      else std::this_thread::sleep_for(pause);
    } while (is_taken_.load(std::memory_order_relaxed) || !try_lock());
  }

  std::atomic<bool> is_taken_ = false;
};

}  // namespace amldist
