#include "base/time/burst_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace amldist::burst_clock_test {
namespace {

constexpr auto longer_than_a_tick = std::chrono::milliseconds(25);

/// Reads until the clock repeats itself: at the latest when a thousand readings fit into a tick of the kernel.
void read_until_inexact(BurstClock& clock) {
  constexpr int most = 100'000'000;
  for (int i = 0; i < most && clock.is_exact(); ++i) static_cast<void>(clock.now());
}

TEST(BurstClock, IsExactForFiveHundredReadings) {
  const TickClock ticks;
  BurstClock clock;
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t before = ticks.now();
    const std::uint64_t read = clock.now();
    ASSERT_TRUE(clock.is_exact());
    ASSERT_LE(before, read);
    ASSERT_LE(read, ticks.now());
    ASSERT_EQ(clock.latest(), read);
    ASSERT_EQ(clock.exactly(), read);
  }
}

TEST(BurstClock, RepeatsItselfInABurstUntilTheNextTick) {
  const TickClock ticks;
  BurstClock clock;
  read_until_inexact(clock);
  ASSERT_FALSE(clock.is_exact());
  const std::uint64_t read = clock.latest();
  EXPECT_LT(read, clock.exactly());
  EXPECT_LT(read, ticks.now());
  const std::uint64_t before = ticks.now();
  std::this_thread::sleep_for(longer_than_a_tick);
  EXPECT_LT(before, clock.now());
  EXPECT_TRUE(clock.is_exact());
}

TEST(BurstClock, ReadsExactlyWhenAsked) {
  const TickClock ticks;
  BurstClock clock;
  read_until_inexact(clock);
  const std::uint64_t before = ticks.now();
  EXPECT_LE(before, clock.read());
  EXPECT_TRUE(clock.is_exact());
  EXPECT_LE(before, clock.exactly());
}

/// Even if its last readings were long ago, and were a burst.
TEST(BurstClock, IsExactWhereReadingsAreFarApart) {
  const TickClock ticks;
  BurstClock clock;
  read_until_inexact(clock);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(longer_than_a_tick);
    const std::uint64_t before = ticks.now();
    EXPECT_LE(before, clock.now());
    EXPECT_TRUE(clock.is_exact());
  }
}

TEST(BurstClock, TheEndOfAnInexactCallIsExactInALaterTick) {
  const TickClock ticks;
  BurstClock clock;
  read_until_inexact(clock);
  std::this_thread::sleep_for(2 * longer_than_a_tick);
  const std::uint64_t before = ticks.now();
  const BurstClock::End end = clock.end_of_inexact();
  EXPECT_LE(before, end.ticks);
  EXPECT_FALSE(end.in_next_tick);
}

}  // namespace
}  // namespace amldist::burst_clock_test
