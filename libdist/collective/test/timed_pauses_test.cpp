#include "collective/node/channel/timed_pauses.hpp"

#include <gtest/gtest.h>

namespace amldist::collective::timed_pauses_test {
namespace {

constexpr std::uint64_t began = 7;

TEST(TimedPauses, ACallThatNeverWaitedEndsWhenItBegan) {
  TimedPauses pauses;
  pauses.begin_call();
  EXPECT_EQ(pauses.looks().first, 0U);
  EXPECT_EQ(pauses.looks().end(began, TickClock()), began);
}

TEST(TimedPauses, ACallEndsAtItsLastLookInVain) {
  const TickClock clock;
  TimedPauses pauses;
  pauses.begin_call();
  const std::uint64_t before = clock.now();
  pauses.pause();
  const std::uint64_t first = pauses.looks().first;
  EXPECT_LE(before, first);
  EXPECT_EQ(pauses.looks().end(began, clock), first);
  const std::uint64_t between = clock.now();
  pauses.pause();
  EXPECT_EQ(pauses.looks().first, first);
  EXPECT_LE(between, pauses.looks().end(began, clock));
  EXPECT_LE(pauses.looks().end(began, clock), clock.now());
}

TEST(TimedPauses, TheEndOfAnotherWaitIsRead) {
  const TickClock clock;
  TimedPauses pauses;
  pauses.begin_call();
  pauses.wait_otherwise();
  EXPECT_NE(pauses.looks().first, 0U);
  const std::uint64_t before = clock.now();
  EXPECT_LE(before, pauses.looks().end(began, clock));
  pauses.pause();  // the call waits again
  EXPECT_EQ(pauses.looks().end(began, clock), pauses.looks().last);
}

TEST(TimedPauses, TheNextCallHasLooksOfItsOwn) {
  TimedPauses pauses;
  pauses.wait_otherwise();
  pauses.begin_call();
  EXPECT_EQ(pauses.looks().end(began, TickClock()), began);
}

}  // namespace
}  // namespace amldist::collective::timed_pauses_test
