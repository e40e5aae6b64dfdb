// How ranks that wait for long sleep, and are woken by the one that they wait for.
#include "collective/node/slot_channel.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "os/shared_futex.hpp"
#include "refusals.hpp"

namespace amldist::collective {
namespace {

TEST(SharedFutex, WhoSleepsIsWoken) {
  std::atomic<std::uint32_t> word = 7;
  std::atomic<bool> is_awake = false;
  std::thread sleeper([&] {
    while (word.load() == 7) sleep_while(word, 7, std::chrono::hours(1));
    is_awake = true;
  });
  while (wake_sleepers(word) == 0) std::this_thread::yield();
  word = 8;
  while (!is_awake) static_cast<void>(wake_sleepers(word));
  sleeper.join();
}

TEST(SharedFutex, WhoComesLateDoesNotSleep) {
  const std::atomic<std::uint32_t> word = 8;
  sleep_while(word, 7, std::chrono::hours(1));
  EXPECT_EQ(wake_sleepers(word), 0);
}

/// Two ranks on one processor.
class SlotChannelTest : public ::testing::Test {
 protected:
  static constexpr std::size_t slot = 4096;

  SlotChannelTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, slot)).value()),
        own_(memory_.data(), {0, 2, {0, 1}, {}}, slot, true),
        theirs_(memory_.data(), {1, 2, {0, 1}, {}}, slot, true) {
    own_.wait_under(watchdog_);
    theirs_.wait_under(watchdog_);
  }

  SharedMemory memory_;
  SlotChannel own_;
  SlotChannel theirs_;
  Patience watchdog_;
};

TEST_F(SlotChannelTest, ARankThatWaitsForLongSleepsUntilThePeerPublishes) {
  constexpr int rounds = 20;
  for (SlotChannel* const each : {&own_, &theirs_}) each->look_every(std::chrono::hours(1));
  std::thread waiter([&] {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(own_.begin());
      own_.publish();
      ASSERT_TRUE(own_.await(1));
    }
  });
  for (int round = 0; round < rounds; ++round) {
    ASSERT_TRUE(theirs_.begin());
    while (!theirs_.has_sleepers()) std::this_thread::yield();
    theirs_.publish();
    ASSERT_TRUE(theirs_.await(0));
  }
  waiter.join();
  EXPECT_FALSE(theirs_.has_sleepers());
  EXPECT_FALSE(own_.has_sleepers());
}

}  // namespace
}  // namespace amldist::collective
