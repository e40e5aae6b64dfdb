// Which of two ways the long messages of a pair take.
#include "collective/node/channel/message_way.hpp"

#include <gtest/gtest.h>

namespace amldist::collective::message_way_test {
namespace {

TEST(MessageWay, TheWriterTriesBothInTurnAndThenTakesWhatTheReaderPrefers) {
  MessageWayChoice choice;
  for (std::uint64_t i = 0; i < tuning::messages_tried; ++i) {
    EXPECT_EQ(choice.fetches(100000, 0), i % 2 == 1);
    choice.count(100000);
  }
  EXPECT_FALSE(choice.fetches(100000, 0));
  EXPECT_TRUE(choice.fetches(100000, 1U << tuning::message_class(100000)));
  EXPECT_FALSE(choice.fetches(100000, 1U << tuning::message_class(1 << 20)));
}

TEST(MessageWay, TheReaderPrefersWhatWasFasterOnceItKnowsBoth) {
  MessageWayTimes times;
  const std::uint64_t bit = 1U << tuning::message_class(100000);
  EXPECT_EQ(times.note(100000, false, 200), 0U);
  EXPECT_EQ(times.note(100000, true, 100), bit);
  EXPECT_EQ(times.note(1 << 20, true, 100), bit) << "each class has times of its own";
  EXPECT_EQ(times.note(100000, false, 98), bit) << "a difference of a twentieth changes nothing";
  EXPECT_EQ(times.note(100000, false, 50), 0U);
}

TEST(MessageWay, OldTimesCountLessAndLess) {
  MessageWayTimes times;
  static_cast<void>(times.note(100000, true, 100));
  EXPECT_EQ(times.note(100000, false, 50), 0U);
  std::uint64_t preferred = 0;
  for (int i = 0; i < 200; ++i) preferred = times.note(100000, false, 300);  // the processors have moved
  EXPECT_EQ(preferred, 1U << tuning::message_class(100000));
}

TEST(MessageWay, FewOfTheMessagesAreTimedOnceCopyingIsFaster) {
  MessageWayTimes times;
  const auto timed = [&times](bool is_fetched) {
    int out = 0;
    for (int i = 0; i < 80; ++i) out += times.wants(100000, is_fetched) ? 1 : 0;
    return out;
  };
  EXPECT_EQ(timed(false), 80) << "nothing is known yet";
  static_cast<void>(times.note(100000, true, 200));
  static_cast<void>(times.note(100000, false, 100));
  EXPECT_EQ(timed(false), 10);
  EXPECT_EQ(timed(true), 80) << "a trial";
  static_cast<void>(times.note(100000, true, 50));
  EXPECT_EQ(timed(false), 80) << "fetching is faster: what is copied is a trial";
}

}  // namespace
}  // namespace amldist::collective::message_way_test
