#include "collective/node/channel/processor_contention.hpp"

#include <gtest/gtest.h>

namespace amldist::collective::processor_contention_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A rank whose yields take what it is told.
class Rank {
 public:
  explicit Rank(std::uint32_t ranks = 4) : contention_(ranks) {}

  void yield(Clock::duration taken) {
    now_ += taken;
    contention_.yielded(now_, taken);
  }
  void pass(Clock::duration time) { now_ += time; }
  void expects_long_yields_for(Clock::duration time) { contention_.expect_long_yields_until(now_ + time); }
  [[nodiscard]] bool naps() const { return contention_.is_contended(now_); }

 private:
  ProcessorContention contention_;
  Clock::time_point now_{std::chrono::hours(1)};
};

TEST(ProcessorContention, RanksThatYieldToEachOtherAreNone) {
  Rank rank;
  for (int i = 0; i < 1000; ++i) rank.yield(microseconds(2));
  EXPECT_FALSE(rank.naps());
}

TEST(ProcessorContention, ATurnOfHundredsOfRanksIsNone) {
  Rank rank(512);
  for (int i = 0; i < 1000; ++i) rank.yield(milliseconds(2));
  EXPECT_FALSE(rank.naps());
}

TEST(ProcessorContention, OneLongYieldIsAProcessThatStarts) {
  Rank rank;
  for (int i = 0; i < 10; ++i) {
    rank.yield(milliseconds(3));
    EXPECT_FALSE(rank.naps());
    rank.yield(microseconds(2));
  }
}

TEST(ProcessorContention, TwoLongYieldsInARowAreAProgramThatComputesForAWhile) {
  Rank rank;
  rank.yield(milliseconds(3));
  rank.yield(milliseconds(3));
  EXPECT_TRUE(rank.naps());
  rank.pass(milliseconds(19));
  EXPECT_TRUE(rank.naps());
  rank.pass(milliseconds(2));
  EXPECT_FALSE(rank.naps());
}

TEST(ProcessorContention, LongYieldsWhileRanksMapTheirMemoryAreNone) {
  Rank rank;
  rank.expects_long_yields_for(milliseconds(10));
  for (int i = 0; i < 3; ++i) rank.yield(milliseconds(3));
  EXPECT_FALSE(rank.naps());
  rank.yield(milliseconds(3));  // the first that counts
  EXPECT_FALSE(rank.naps());
  rank.yield(milliseconds(3));
  EXPECT_TRUE(rank.naps());
}

TEST(ProcessorContention, WhatGoesOnIsAskedAboutLessAndLessOften) {
  Rank rank;
  double lost = 0;
  double all = 0;
  for (int i = 0; i < 8; ++i) {
    rank.yield(milliseconds(3));
    rank.yield(milliseconds(3));
    int naps = 0;
    for (; rank.naps(); ++naps) rank.pass(milliseconds(1));
    EXPECT_EQ(naps, std::min(20 << i, 640));
    lost += 6;
    all += 6 + naps;
  }
  EXPECT_LT(lost / all, 0.025);
}

TEST(ProcessorContention, AfterAPauseItBeginsAnew) {
  Rank rank;
  for (int i = 0; i < 8; ++i) {
    rank.yield(milliseconds(3));
    rank.yield(milliseconds(3));
    while (rank.naps()) rank.pass(milliseconds(1));
  }
  rank.pass(milliseconds(1000));
  rank.yield(milliseconds(3));
  rank.yield(milliseconds(3));
  rank.pass(milliseconds(21));
  EXPECT_FALSE(rank.naps());
}

}  // namespace
}  // namespace amldist::collective::processor_contention_test
