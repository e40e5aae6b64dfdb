#include "base/os/quiet_thread.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>

namespace amldist {
namespace {

void wait_for(int stop) {
  pollfd file = {stop, POLLIN, 0};
  static_cast<void>(::poll(&file, 1, -1));
}

TEST(QuietThread, TakesNoSignalAndStopsWhenItIsTold) {
  std::atomic<bool> blocks_all = false;
  std::atomic<bool> returned = false;
  {
    QuietThread thread;
    EXPECT_FALSE(thread.is_started());
    ASSERT_TRUE(thread.start([&](int stop) {
      sigset_t own;
      ::pthread_sigmask(SIG_BLOCK, nullptr, &own);
      blocks_all = sigismember(&own, SIGTERM) == 1 && sigismember(&own, SIGCHLD) == 1;
      wait_for(stop);
      returned = true;
    }));
  }
  EXPECT_TRUE(blocks_all);
  EXPECT_TRUE(returned);
  sigset_t callers;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &callers);
  EXPECT_EQ(sigismember(&callers, SIGTERM), 0) << "the caller's mask is as before";
}

TEST(QuietThread, EndsWithoutMemory) {
  QuietThread thread;
  ASSERT_TRUE(thread.start([](int /*stop*/) { throw std::bad_alloc(); }));
}

TEST(QuietThread, AForkThatEndsLeavesItAlone) {
  QuietThread thread;
  ASSERT_TRUE(thread.start(wait_for));
  EXPECT_EXIT(
      {
        thread.~QuietThread();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace amldist
