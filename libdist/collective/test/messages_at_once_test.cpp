// Short messages that take no waiting.
#include <gtest/gtest.h>

#include "node_transport_fixture.hpp"

namespace amldist::collective::messages_at_once_test {
namespace {

class AtOnce : public NodeTransportTest {
 protected:
  [[nodiscard]] bool moves(int rank, Direction direction, int peer, std::vector<std::byte>& data,
                           std::uint32_t signature = 7) {
    return end(rank).move_at_once({peer, data.data(), data.size(), signature, false}, direction, Transport::Look::once);
  }
  std::vector<std::byte> given = pattern(100, 1);
  std::vector<std::byte> got = std::vector<std::byte>(100);
};

TEST_F(AtOnce, EachLengthThatFitsArrives) {
  constexpr std::size_t longest = tuning::longest_short_message - MessageRing::line;
  for (const std::size_t length :
       {0UL, 1UL, 48UL, 49UL, 64UL, 65UL, 112UL, 113UL, 1000UL, 2032UL, 2048UL, 2049UL, longest}) {
    for (unsigned round = 0; round < 40; ++round) {  // past the ring's end
      given = pattern(length, round);
      got.assign(length, std::byte{0});
      ASSERT_TRUE(moves(first, Direction::send, second, given)) << length;
      ASSERT_TRUE(moves(second, Direction::receive, first, got)) << length;
      ASSERT_EQ(got, given) << length;
    }
  }
}

TEST_F(AtOnce, NothingHappensToATooLongOneOrWithoutTheOther) {
  given.resize(capacity / 2 + 1);
  EXPECT_FALSE(moves(first, Direction::send, second, given));
  EXPECT_FALSE(moves(second, Direction::receive, first, got));
}

TEST_F(AtOnce, ALongOneIsSentInPartsAndReceivedByPost) {
  for (const std::size_t length : {8192UL - 63, 16320UL, 16321UL, 20000UL, 65536UL}) {
    for (unsigned round = 0; round < 5; ++round) {
      given = pattern(length, round);
      got.assign(length, std::byte{0});
      ASSERT_TRUE(moves(first, Direction::send, second, given)) << length;
      EXPECT_FALSE(moves(second, Direction::receive, first, got)) << length;
      std::size_t left = 0;
      post(second, Direction::receive, first, got, left);
      run(first, second);
      EXPECT_EQ(left, 0U);
      ASSERT_EQ(got, given) << length;
    }
  }
}

TEST_F(AtOnce, ALongOneIsSentWholeOrNotAtAll) {
  for (std::size_t length = 8192; length < capacity; length += 12345) {
    given = pattern(length, 5);
    got.assign(length, std::byte{0});
    std::size_t left = 0;
    if (!moves(first, Direction::send, second, given)) post(first, Direction::send, second, given, left);
    post(second, Direction::receive, first, got, left);
    run(first, second);
    EXPECT_EQ(left, 0U) << length;
    ASSERT_EQ(got, given) << length;
  }
}

TEST_F(AtOnce, AFullRingTakesNothing) {
  int sent = 0;
  while (moves(first, Direction::send, second, given)) ++sent;
  EXPECT_EQ(sent, static_cast<int>(ring_capacity / 128));  // two lines for the header and the data
  for (; sent > 0; --sent) EXPECT_TRUE(moves(second, Direction::receive, first, got));
  EXPECT_EQ(got, given);
  EXPECT_FALSE(moves(second, Direction::receive, first, got));
}

TEST_F(AtOnce, PostedOnesComeFirst) {
  std::vector<std::byte> earlier = pattern(2 * capacity, 2);
  std::vector<std::byte> taken(earlier.size());
  std::size_t sending = 0;
  std::size_t receiving = 0;
  post(first, Direction::send, second, earlier, sending);
  EXPECT_FALSE(moves(first, Direction::send, second, given));
  post(second, Direction::receive, first, taken, receiving);
  EXPECT_FALSE(moves(second, Direction::receive, first, got));
  run(first, second);
  EXPECT_EQ(taken, earlier);
  EXPECT_TRUE(moves(first, Direction::send, second, given));
  post(second, Direction::receive, first, got, receiving);
  run(first, second);
  EXPECT_EQ(sending + receiving, 0U);
  EXPECT_EQ(got, given);
}

TEST_F(AtOnce, PostedReceivesGetWhatHasArrivedIfTheyAreOneOrTwoOrFourAndProgressSaysSo) {
  for (const std::size_t waiting : {1U, 2U, 3U, 4U, 5U, 8U}) {
    std::vector<std::vector<std::byte>> earlier(waiting, std::vector<std::byte>(100));
    std::vector<std::byte> next = pattern(100, 2);
    std::size_t left = 0;
    for (auto& each : earlier) post(second, Direction::receive, first, each, left);
    for (std::size_t i = 0; i < waiting; ++i) EXPECT_TRUE(moves(first, Direction::send, second, given));
    EXPECT_TRUE(moves(first, Direction::send, second, next));
    const bool looks = waiting != 3 && waiting != 5;
    EXPECT_EQ(moves(second, Direction::receive, first, got), looks) << waiting;
    EXPECT_EQ(left, looks ? 0U : waiting);
    EXPECT_TRUE(*end(second).progress(watchdog));
    EXPECT_FALSE(*end(second).progress(watchdog));
    if (!looks) {
      EXPECT_TRUE(moves(second, Direction::receive, first, got));
    }
    for (auto& each : earlier) EXPECT_EQ(each, given);
    EXPECT_EQ(got, next);
  }
}

TEST_F(AtOnce, AnotherOneThanExpectedIsLeftForPost) {
  ASSERT_TRUE(moves(first, Direction::send, second, given));
  std::vector<std::byte> shorter(99);
  EXPECT_FALSE(moves(second, Direction::receive, first, shorter));
  EXPECT_FALSE(moves(second, Direction::receive, first, got, 8));
  std::size_t left = 0;
  post(second, Direction::receive, first, shorter, left);
  EXPECT_EQ(error_of(second), "differs 2");
}

TEST_F(AtOnce, ADamagedRingIsLeftForPost) {
  std::vector<std::byte> rest(4000);
  do ring().taken.store(12345);
  while (moves(first, Direction::send, second, rest));
  std::size_t left = 0;
  EXPECT_FALSE(end(first).post({second, rest.data(), rest.size(), 7, false}, Direction::send, left, watchdog));
}

TEST_F(AtOnce, OtherNodesAreAsked) {
  EXPECT_FALSE(moves(first, Direction::send, 9, given));
  EXPECT_TRUE(elsewhere.empty());
}

}  // namespace
}  // namespace amldist::collective::messages_at_once_test
