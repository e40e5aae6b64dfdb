#include "collective/communicator/wait_habit.hpp"

#include <gtest/gtest.h>

namespace amldist::collective {
namespace {

using std::chrono::microseconds;

struct TestTime {
  using time_point = std::chrono::time_point<TestTime, microseconds>;
  using duration = microseconds;
  static time_point now() noexcept { return time_point(microseconds(at)); }
  static inline long at = 0;
};

class WaitHabitTest : public ::testing::Test {
 protected:
  void begin_and_wait(long after, int times = 1) {
    for (int i = 0; i < times; ++i) {
      habit.note_begin();
      TestTime::at += after;
      habit.note_wait();
    }
  }
  WaitHabitOn<TestTime> habit;
};

TEST_F(WaitHabitTest, IsKnownAfterAFewWaits) {
  EXPECT_FALSE(habit.waits_soon());
  begin_and_wait(5, 2);
  EXPECT_FALSE(habit.waits_soon());
  begin_and_wait(5);
  EXPECT_TRUE(habit.waits_soon());
}

TEST_F(WaitHabitTest, IsForgottenWhenWaitsComeLate) {
  begin_and_wait(5, 100);
  EXPECT_TRUE(habit.waits_soon());
  begin_and_wait(1000, 10);  // the ninth is measured at the latest, and then each
  EXPECT_FALSE(habit.waits_soon());
  begin_and_wait(1000, 100);
  EXPECT_FALSE(habit.waits_soon());
  begin_and_wait(5, 3);
  EXPECT_TRUE(habit.waits_soon());
}

TEST_F(WaitHabitTest, OneLateWaitIsForgiven) {
  begin_and_wait(5, 3);
  for (int i = 0; i < 10; ++i) {
    begin_and_wait(1000, 9);  // the last is measured, and so are the next three
    EXPECT_TRUE(habit.waits_soon());
    begin_and_wait(5, 3);
    EXPECT_TRUE(habit.waits_soon());
  }
}

TEST_F(WaitHabitTest, AProgramThatOftenWaitsLateHasNoHabit) {
  begin_and_wait(5, 3);
  for (int i = 0; i < 10; ++i) {
    begin_and_wait(1000);
    begin_and_wait(5);
  }
  EXPECT_FALSE(habit.waits_soon());
}

TEST_F(WaitHabitTest, EachWaitIsMeasuredAfterALateOne) {
  begin_and_wait(5, 3);
  for (int i = 0; i < 10; ++i) {
    begin_and_wait(1000);
    habit.note_wait();  // for another call of the same window
  }
  EXPECT_FALSE(habit.waits_soon());
}

/// Windows of 64 calls, each of which takes `own` microseconds, with `between` after each.
class WaitHabitOfWindows : public WaitHabitTest {
 protected:
  void begin_windows_and_wait(long own, bool is_long, long between) {
    begin_and_wait(5, 3);
    for (int window = 0; window < 10; ++window) {
      for (int call = 0; call < 64; ++call) {
        {
          const WaitHabitOn<TestTime>::CallTime time(habit, is_long);
          TestTime::at += own;
          habit.note_begin();
        }
        TestTime::at += between;
      }
      habit.note_wait();
    }
  }
};

TEST_F(WaitHabitOfWindows, IsMeasuredFromTheFirstCall) {
  begin_windows_and_wait(0, false, 1);
  EXPECT_TRUE(habit.waits_soon()) << "short calls take that long themselves";
  begin_windows_and_wait(0, false, 2);
  EXPECT_FALSE(habit.waits_soon()) << "it computes between them";
}

TEST_F(WaitHabitOfWindows, WhatLongCallsTakeThemselvesIsNotLate) {
  begin_windows_and_wait(10, true, 1);
  EXPECT_TRUE(habit.waits_soon());
  begin_windows_and_wait(10, true, 2);
  EXPECT_FALSE(habit.waits_soon()) << "it computes between them";
  begin_windows_and_wait(10, false, 1);
  EXPECT_FALSE(habit.waits_soon()) << "short calls are not measured, and count a microsecond each";
}

TEST_F(WaitHabitTest, AProgramThatOnlyTestsDoesNotWait) {
  begin_and_wait(5, 10);
  habit.note_begin();
  habit.note_test();
  EXPECT_FALSE(habit.waits_soon());
}

TEST_F(WaitHabitTest, ManyCallsWithoutAWaitEndIt) {
  begin_and_wait(5, 10);
  for (int i = 0; i < 999; ++i) habit.note_begin();
  EXPECT_TRUE(habit.waits_soon());
  habit.note_begin();
  EXPECT_FALSE(habit.waits_soon());
}

}  // namespace
}  // namespace amldist::collective
