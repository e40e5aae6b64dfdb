#include "base/time/burst_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace amldist::burst_clock_test {
namespace {

constexpr auto longer_than_a_tick = std::chrono::milliseconds(25);

/// A clock that has begun to repeat itself.
class BurstClockInABurst : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr int most = 1'000'000;
    for (int i = 0; i < most && clock.is_exact(); ++i) static_cast<void>(clock.now());
    if (clock.is_exact()) GTEST_SKIP() << "reading takes a microsecond or more here: no thousand fit into a tick";
  }

  TickClock ticks;
  BurstClock clock;
};

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

TEST_F(BurstClockInABurst, IsExactAgainInTheNextTick) {
  const std::uint64_t read = clock.latest();
  EXPECT_LE(read, ticks.now());
  const std::uint64_t before = ticks.now();
  std::this_thread::sleep_for(longer_than_a_tick);
  EXPECT_LT(before, clock.now());
  EXPECT_TRUE(clock.is_exact());
}

TEST_F(BurstClockInABurst, ReadsExactlyWhenAsked) {
  const std::uint64_t before = ticks.now();
  EXPECT_LE(before, clock.read_exactly());
  EXPECT_TRUE(clock.is_exact());
  EXPECT_LE(before, clock.exactly());
}

TEST_F(BurstClockInABurst, RepeatsWhatWasNoted) {
  const std::uint64_t later = clock.latest() + 1;
  clock.note(later);
  EXPECT_EQ(clock.latest(), later);
  const std::uint64_t next = clock.now();
  EXPECT_TRUE(next == later || clock.is_exact()) << "unless the kernel's clock has just advanced";
}

/// Even if its last readings were long ago, and were a burst.
TEST_F(BurstClockInABurst, IsExactWhereReadingsAreFarApart) {
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(longer_than_a_tick);
    const std::uint64_t before = ticks.now();
    EXPECT_LE(before, clock.now());
    EXPECT_TRUE(clock.is_exact());
  }
}

TEST_F(BurstClockInABurst, TheEndOfAnInexactCallIsExactInALaterTick) {
  std::this_thread::sleep_for(2 * longer_than_a_tick);
  const std::uint64_t before = ticks.now();
  const BurstClock::End end = clock.end_of_inexact();
  EXPECT_LE(before, end.ticks);
  EXPECT_FALSE(end.in_next_tick);
}

}  // namespace
}  // namespace amldist::burst_clock_test
