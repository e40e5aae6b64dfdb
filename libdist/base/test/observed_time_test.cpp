#include "base/time/observed_time.hpp"

#include <gtest/gtest.h>

namespace amldist::observed_time_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::time_point start{seconds(100)};

TEST(ObservedTime, MissesNothingWhileItLooks) {
  ObservedTime time(milliseconds(10), milliseconds(500));
  EXPECT_EQ(time.missed(start), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + milliseconds(10)), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + milliseconds(500)), Clock::duration::zero()) << "the machine is busy";
}

TEST(ObservedTime, AStopIsMissedTime) {
  ObservedTime time(milliseconds(10), milliseconds(500));
  EXPECT_EQ(time.missed(start), Clock::duration::zero());
  EXPECT_EQ(time.missed(start + seconds(60) + milliseconds(10)), seconds(60));
  EXPECT_EQ(time.missed(start + seconds(60) + milliseconds(20)), Clock::duration::zero());
}

}  // namespace
}  // namespace amldist::observed_time_test
