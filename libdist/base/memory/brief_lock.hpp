// A lock that is nearly always free, or free again within a microsecond: taking it is one locked instruction, returning
// it none. A std::mutex takes two, and 60 instructions, which is a tenth of a short message.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace amldist {

/// As std::mutex; wait with std::condition_variable_any. A thread that finds it taken yields its processor, and then
/// sleeps, longer each time, a millisecond at most: the thread that has it may have a lower priority, or keep it for
/// long. Thread-safe.
class BriefLock {
 public:
  BriefLock() = default;
  BriefLock(const BriefLock&) = delete;
  BriefLock& operator=(const BriefLock&) = delete;
  ~BriefLock() = default;

  void lock() noexcept {
    if (!try_lock()) await();
  }
  [[nodiscard]] bool try_lock() noexcept { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void await() noexcept {
    constexpr int yields = 64;
    constexpr std::chrono::microseconds longest(1000);
    std::chrono::microseconds pause(10);
    int looks = 0;
    do {
      if (++looks < yields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, longest);
      }
    } while (is_taken_.load(std::memory_order_relaxed) || !try_lock());
  }

  std::atomic<bool> is_taken_ = false;
};

}  // namespace amldist
