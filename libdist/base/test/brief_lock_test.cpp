#include "base/memory/brief_lock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace amldist::brief_lock_test {
namespace {

TEST(BriefLock, OneThreadHasItAtATime) {
  BriefLock lock;
  int sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const std::lock_guard own(lock);
        ++sum;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(sum, 40'000);
}

TEST(BriefLock, IsRefusedWhileItIsTaken) {
  BriefLock lock;
  {
    const std::lock_guard own(lock);
    EXPECT_FALSE(lock.try_lock());
  }
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

/// Longer than it yields: the waiting thread sleeps meanwhile.
TEST(BriefLock, IsWaitedForAlsoIfItIsHeldForLong) {
  BriefLock lock;
  lock.lock();
  bool is_released = false;
  std::thread other([&] {
    const std::lock_guard own(lock);
    EXPECT_TRUE(is_released);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  is_released = true;
  lock.unlock();
  other.join();
}

TEST(BriefLock, IsReturnedDuringAWait) {
  BriefLock lock;
  std::condition_variable_any changed;
  bool is_set = false;
  std::thread other([&] {
    const std::lock_guard own(lock);
    is_set = true;
    changed.notify_one();
  });
  {
    std::unique_lock own(lock);
    changed.wait(own, [&] { return is_set; });
    EXPECT_TRUE(is_set);
  }
  other.join();
}

}  // namespace
}  // namespace amldist::brief_lock_test
