#include "os/observed_time.hpp"

#include <gtest/gtest.h>

namespace amldist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ObservedTime, MissesNothingWhileItLooks) {
  ObservedTime time(seconds(1));
  const Clock::time_point start{seconds(100)};
  EXPECT_EQ(time.missed(start), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + milliseconds(900)), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + milliseconds(1900)), Clock::duration::zero());
}

TEST(ObservedTime, AStopIsMissedTime) {
  ObservedTime time(seconds(1));
  const Clock::time_point start{seconds(100)};
  EXPECT_EQ(time.missed(start), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + seconds(61)), seconds(60));
  EXPECT_EQ(time.missed(start + seconds(61) + milliseconds(10)), Clock::duration::zero());
}

}  // namespace
}  // namespace amldist
