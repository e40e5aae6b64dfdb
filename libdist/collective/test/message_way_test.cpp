// Which way the long messages of a pair take.
#include "collective/node/channel/message_way.hpp"

#include <gtest/gtest.h>

#include "collective/node/channel/message_ring.hpp"
#include "ends_in_one_process.hpp"

namespace amldist::collective::message_way_test {
namespace {

constexpr std::size_t length = 100000;
constexpr std::size_t its_class = tuning::message_class(length, false);

PreferredWays prefers(MessageWay way, std::size_t message_class = its_class) {
  PreferredWays ways;
  ways.set(message_class, way);
  return ways;
}

TEST(MessageWay, TheWriterTriesAllInTurnAndThenTakesWhatTheReaderPrefers) {
  for (const bool can_fetch : {true, false}) {
    MessageWayChoice choice;
    const std::uint64_t ways = can_fetch ? 3 : 2;
    for (std::uint64_t i = 0; i < tuning::messages_tried * ways; ++i) {
      EXPECT_EQ(choice.next(its_class, {}, can_fetch), static_cast<MessageWay>(i % ways));
      choice.count(its_class);
    }
    EXPECT_EQ(choice.next(its_class, {}, can_fetch), MessageWay::copied);
    EXPECT_EQ(choice.next(its_class, prefers(MessageWay::streamed), can_fetch), MessageWay::streamed);
    EXPECT_EQ(choice.next(its_class, prefers(MessageWay::fetched), can_fetch),
              can_fetch ? MessageWay::fetched : MessageWay::copied);
    EXPECT_EQ(choice.next(its_class, prefers(MessageWay::streamed, 0), can_fetch), MessageWay::copied);
  }
}

TEST(MessageWay, NonsenseInTheRingPrefersNothing) {
  EXPECT_EQ(PreferredWays(~std::uint64_t{0}).of(its_class), MessageWay::copied);
  for (std::size_t each = 0; each < tuning::message_classes; ++each) {
    EXPECT_EQ(PreferredWays(prefers(MessageWay::fetched, each).bits()).of(each), MessageWay::fetched);
  }
}

TEST(MessageWay, TheLineOfAMessageHasItsWayAndItsClass) {
  constexpr std::uint64_t place = 4096;
  const SharedMemory memory = make_memory(MessageRing::bytes_of(2));
  auto& ring = *reinterpret_cast<MessageRing*>(memory.data());
  RingWriter writer(ring, MessageRing::capacity_of(2), 99);
  RingReader reader(ring, MessageRing::capacity_of(2));
  for (const MessageWay way : {MessageWay::copied, MessageWay::streamed, MessageWay::fetched}) {
    for (const bool goes_both_ways : {false, true}) {
      writer.write_line({4711, way, goes_both_ways}, length, place);
      EXPECT_FALSE(reader.announced(4712));
      const auto read = reader.announced(4711);
      ASSERT_TRUE(read);
      EXPECT_TRUE(read->way() == way && read->goes_both_ways() == goes_both_ways);
      EXPECT_EQ(read->length(), length);
      EXPECT_EQ(reader.where(), place);
      reader.take_line();
    }
  }
  EXPECT_EQ(writer.offered(), 2U);
}

TEST(MessageWay, TheReaderPrefersWhatWasFastest) {
  MessageWayTimes times;
  EXPECT_EQ(times.note(its_class, MessageWay::copied, 200), PreferredWays());
  EXPECT_EQ(times.note(its_class, MessageWay::fetched, 100), prefers(MessageWay::fetched));
  EXPECT_EQ(times.note(tuning::message_class(1 << 20, false), MessageWay::fetched, 100), prefers(MessageWay::fetched))
      << "each class has times of its own";
  EXPECT_EQ(times.note(tuning::message_class(length, true), MessageWay::copied, 10), prefers(MessageWay::fetched))
      << "and so do messages that go both ways at once";
  EXPECT_EQ(times.note(its_class, MessageWay::streamed, 98), prefers(MessageWay::fetched))
      << "a difference of a twentieth changes nothing";
  EXPECT_EQ(times.note(its_class, MessageWay::streamed, 50), prefers(MessageWay::streamed));
  EXPECT_EQ(times.note(its_class, MessageWay::copied, 30), PreferredWays());
}

TEST(MessageWay, OldTimesCountLessAndLess) {
  MessageWayTimes times;
  static_cast<void>(times.note(its_class, MessageWay::fetched, 100));
  EXPECT_EQ(times.note(its_class, MessageWay::copied, 50), PreferredWays());
  PreferredWays preferred;
  for (int i = 0; i < 200; ++i)  // the processors have moved
    preferred = times.note(its_class, MessageWay::copied, 300);
  EXPECT_EQ(preferred, prefers(MessageWay::fetched));
}

TEST(MessageWay, FewOfTheMessagesAreTimedOnceAWayThroughTheRingIsFastest) {
  MessageWayTimes times;
  const auto timed = [&times](MessageWay way) {
    int out = 0;
    for (int i = 0; i < 80; ++i) out += times.wants(its_class, way) ? 1 : 0;
    return out;
  };
  EXPECT_EQ(timed(MessageWay::copied), 80) << "nothing is known yet";
  static_cast<void>(times.note(its_class, MessageWay::copied, 100));
  static_cast<void>(times.note(its_class, MessageWay::fetched, 200));
  EXPECT_EQ(timed(MessageWay::copied), 10);
  EXPECT_EQ(timed(MessageWay::fetched), 80) << "a trial";
  static_cast<void>(times.note(its_class, MessageWay::streamed, 50));
  EXPECT_EQ(timed(MessageWay::streamed), 10);
  EXPECT_EQ(timed(MessageWay::copied), 80);
  static_cast<void>(times.note(its_class, MessageWay::fetched, 20));
  EXPECT_EQ(timed(MessageWay::fetched), 80) << "two readings of the clock are little beside a fetch";
}

}  // namespace
}  // namespace amldist::collective::message_way_test
