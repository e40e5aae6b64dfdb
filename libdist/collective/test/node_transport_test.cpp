// Messages through the rings of one node, step by step. Both ends are in one process, so that a test decides which end
// makes progress, and can write invalid data into the ring.
#include "collective/transport/node_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "node_transport_fixture.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t header = 16;

TEST_F(NodeTransportTest, EveryLengthAtABorderArrives) {
  std::vector<std::size_t> lengths = {0, 1, header - 1, header, header + 1};
  // 2, 4, 6, 16, 24, 64 and 128 KiB
  for (const std::size_t lines : {1UL, 2UL, 32UL, 64UL, 65UL, 96UL, 256UL, 384UL, 1024UL, 2048UL}) {
    const std::size_t border = lines * MessageRing::line;
    for (const std::size_t base : {border - header, border}) {
      for (const std::size_t length : {base - 1, base, base + 1}) lengths.push_back(length);
    }
  }
  lengths.push_back(10 * capacity + 333);
  for (const std::size_t length : lengths) exchange(length, 3);  // each begins where the last one ended
}

TEST_F(NodeTransportTest, ShortMessagesGoRoundInTheRing) {
  for (unsigned i = 0; i < 2000; ++i) exchange(i % (tuning::longest_short_message - MessageRing::line), i);
  EXPECT_GT(ring().written, 10 * ring_capacity);
}

TEST_F(NodeTransportTest, ShortAndLongMessagesArriveWhateverTheirOrder) {
  std::mt19937 random(41);
  for (unsigned i = 0; i < 3000; ++i) {
    const bool is_long = random() % 8 == 0;
    exchange(random() % (is_long ? capacity / 2 : tuning::message_tried_from), i);
  }
}

TEST_F(NodeTransportTest, ShortAndLongMessagesArriveWhenManyAreUnderWay) {
  std::mt19937 random(42);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> given;
    std::vector<std::vector<std::byte>> got;
    std::size_t left = 0;
    for (unsigned i = 0; i < 100; ++i) {
      given.push_back(pattern(random() % (random() % 8 == 0 ? capacity : tuning::message_tried_from), i));
      got.emplace_back(given.back().size());
    }
    for (auto& each : given) post(first, Direction::send, second, each, left);
    for (auto& each : got) post(second, Direction::receive, first, each, left);
    run(first, second);
    EXPECT_EQ(left, 0U);
    EXPECT_EQ(got, given);
  }
}

TEST_F(NodeTransportTest, ManyAreSentBeforeTheFirstIsReceived) {
  constexpr std::size_t many = 3000;  // some times what the ring holds
  std::deque<std::vector<std::byte>> given;
  std::deque<std::vector<std::byte>> got;
  std::size_t sending = 0;
  std::size_t receiving = 0;
  for (std::size_t i = 0; i < many; ++i) {
    given.push_back(pattern(i % 130, static_cast<unsigned>(i)));
    post(first, Direction::send, second, given.back(), sending);
    ASSERT_TRUE(end(first).progress(watchdog));
  }
  EXPECT_GT(sending, 0U);
  EXPECT_LT(sending, many);
  for (std::size_t i = 0; i < many; ++i) {
    got.emplace_back(given[i].size());
    post(second, Direction::receive, first, got.back(), receiving);
  }
  run(first, second);
  EXPECT_EQ(sending + receiving, 0U);
  EXPECT_EQ(got, given);
}

TEST_F(NodeTransportTest, BothDirectionsAreLongAtOnce) {
  std::vector<std::byte> given[2] = {pattern(1000003, 1), pattern(777777, 2)};
  std::vector<std::byte> got[2] = {std::vector<std::byte>(777777), std::vector<std::byte>(1000003)};
  std::size_t left = 0;
  post(first, Direction::send, second, given[0], left);
  post(second, Direction::send, first, given[1], left);
  run(first, second);  // neither gets far: nobody receives yet
  EXPECT_EQ(left, 2U);
  post(first, Direction::receive, second, got[0], left);
  post(second, Direction::receive, first, got[1], left);
  run(first, second);
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got[0], given[1]);
  EXPECT_EQ(got[1], given[0]);
}

TEST(MessageMemoryTest, EachPairHasARingForEachDirectionAndBlocksForBoth) {
  for (const std::size_t ranks : {1U, 2U, 3U, 8U, 9U, 17U}) {
    auto* const memory = reinterpret_cast<std::byte*>(std::uintptr_t{4096});  // only addresses are compared
    const MessageMemory all(memory, ranks);
    std::map<std::uintptr_t, std::size_t> places;  // and their lengths
    for (std::size_t one = 0; one < ranks; ++one) {
      for (std::size_t other = 0; other < ranks; ++other) {
        places[reinterpret_cast<std::uintptr_t>(&all.ring(one, other))] = MessageRing::bytes_of(ranks);
        EXPECT_EQ(&all.blocks(one, other), &all.blocks(other, one));
        places[reinterpret_cast<std::uintptr_t>(&all.blocks(one, other))] = MessageBlocks::bytes_of(ranks);
      }
    }
    EXPECT_EQ(places.size(), ranks * ranks + ranks * (ranks + 1) / 2);
    std::uintptr_t end = 4096;
    for (const auto& [place, length] : places) {
      EXPECT_EQ(place, end) << "nothing overlaps";
      end = place + length;
    }
    EXPECT_EQ(end - 4096, MessageMemory::bytes_of(ranks));
  }
}

/// Lets a thread sanitizer see both ends.
TEST_F(NodeTransportTest, TheEndsRunAtTheSameTime) {
  constexpr int rounds = 200;
  const auto talk = [this](int rank, int peer) {
    WitnessWatchdog own_watchdog;
    for (std::size_t i = 0; i < rounds; ++i) {
      std::vector<std::byte> given = pattern(i * i * 11, static_cast<unsigned>(rank));
      std::vector<std::byte> got(given.size());
      const Message send = {peer, given.data(), given.size(), 7, false};
      const Message receive = {peer, got.data(), got.size(), 7, false};
      ASSERT_TRUE(end(rank).exchange({&send, 1}, {&receive, 1}, own_watchdog));
      ASSERT_EQ(got, pattern(got.size(), static_cast<unsigned>(peer)));
    }
  };
  std::thread other(talk, second, first);
  talk(first, second);
  other.join();
}

/// Where messages go both ways, the other direction gets its turn meanwhile.
TEST_F(NodeTransportTest, ATurnIsAsManyWholeMessagesAsReach128KiB) {
  constexpr std::size_t length = 8000;
  constexpr std::size_t of_a_turn = (128UL << 10) / length + 1;
  constexpr std::size_t messages = of_a_turn + 10;
  std::vector<std::byte> data(length);
  std::size_t sending = 0;
  std::size_t receiving = 0;
  for (std::size_t i = 0; i < messages; ++i) post(first, Direction::send, second, data, sending);
  while (*end(first).progress(watchdog)) continue;
  EXPECT_EQ(sending, 0U) << "there is room for all";
  for (std::size_t i = 0; i < messages; ++i) post(second, Direction::receive, first, data, receiving);
  EXPECT_TRUE(*end(second).progress(watchdog));
  EXPECT_EQ(receiving, messages - of_a_turn);
  EXPECT_TRUE(*end(second).progress(watchdog));
  EXPECT_EQ(receiving, 0U);
}

TEST_F(NodeTransportTest, OnePeersFullRingHoldsUpNothingWithAnother) {
  std::vector<std::byte> stuck = pattern(1 << 20, 1);
  std::vector<std::byte> given = pattern(100, 2);
  std::vector<std::byte> got(100);
  std::size_t never = 0;
  std::size_t left = 0;
  post(first, Direction::send, second, stuck, never);
  post(first, Direction::send, third, given, left);
  post(third, Direction::receive, first, got, left);
  run(first, third);
  EXPECT_EQ(never, 1U);
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
}

TEST_F(NodeTransportTest, AnotherMessageThanIsExpectedIsNoticed) {
  std::vector<std::byte> given = pattern(100, 1);
  std::vector<std::byte> shorter(99);
  std::size_t left = 0;
  post(first, Direction::send, second, given, left, 7);
  EXPECT_EQ(error_of(first), "none");
  post(second, Direction::receive, first, given, left, 8);
  EXPECT_EQ(error_of(second), "differs 2");
  post(first, Direction::send, third, given, left);
  EXPECT_EQ(error_of(first), "none");
  post(third, Direction::receive, first, shorter, left);
  EXPECT_EQ(error_of(third), "differs 2");
}

TEST_F(NodeTransportTest, OnlyTheNodesOwnRanksAreNeighbours) {
  std::vector<std::byte> data(8);
  std::size_t left = 0;
  for (const int peer : {0, 3, first, 7}) post(first, Direction::send, peer, data, left);  // to itself, too
  EXPECT_EQ(elsewhere, (std::vector<int>{0, 3, first, 7}));
  EXPECT_EQ(end(first).awaited(), 0);
  post(first, Direction::receive, third, data, left);
  EXPECT_EQ(end(first).awaited(), third);
  end(first).give_up();
  EXPECT_EQ(end(first).awaited(), calls::Watchdog::anyone);
}

TEST_F(NodeTransportTest, TheWatchdogIsAskedAboutEveryNeighbour) {
  std::vector<std::byte> data(8);
  std::size_t left = 0;
  post(first, Direction::receive, second, data, left);
  post(first, Direction::receive, third, data, left);
  post(first, Direction::receive, third, data, left);
  ASSERT_TRUE(end(first).keep_waiting(watchdog));
  EXPECT_EQ(watchdog.asked.front(), second);
  EXPECT_EQ(std::ranges::count(watchdog.asked, third), 1);
}

TEST_F(NodeTransportTest, AWaitEndsByAskingAndCanBeInterrupted) {
  std::vector<std::byte> data(8);
  std::size_t left = 0;
  post(first, Direction::receive, second, data, left);
  bool asks = false;
  for (int idle = 1; !asks; ++idle) asks = end(first).rest(idle);
  end(first).interrupt();
  EXPECT_TRUE(end(first).rest(1 << 20));
}

/// Positions that no correct peer can publish.
class DamagedRing : public NodeTransportTest, public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(DamagedRing, IsNoticedByTheReader) {
  std::vector<std::byte> data(1000);
  std::size_t left = 0;
  post(second, Direction::receive, first, data, left);
  ring().written = GetParam();
  EXPECT_EQ(error_of(second), "lost 2: the ring in shared memory is damaged");
}

TEST_P(DamagedRing, IsNoticedByTheWriter) {
  std::vector<std::byte> data(4000);
  std::size_t left = 0;
  while (left == 0) post(first, Direction::send, second, data, left);  // until it is full
  ring().taken = ring_capacity - GetParam();
  EXPECT_EQ(error_of(first), "lost 5: the ring in shared memory is damaged");
}

INSTANTIATE_TEST_SUITE_P(Counters, DamagedRing,
                         ::testing::Values(MessageRing::capacity_of(3) + MessageRing::line, ~std::uint64_t{0}, 63, 1,
                                           std::uint64_t{1} << 63));

/// The word of a message reaches the reader before the writer's position does.
TEST_F(NodeTransportTest, AnAnnouncedMessageArrivesBeforeThePositionDoes) {
  std::vector<std::size_t> lengths = {0, 8, 48, 49, 100, 112, 113, 2048, 4000, 5000};
  lengths.insert(lengths.end(), 60, 4000);  // past the ring's end
  for (const std::size_t length : lengths) {
    std::vector<std::byte> given = pattern(length, 5);
    std::vector<std::byte> got(length);
    std::size_t sending = 0;
    std::size_t receiving = 0;
    const std::uint64_t before = ring().written;
    post(first, Direction::send, second, given, sending);
    post(second, Direction::receive, first, got, receiving);
    EXPECT_EQ(sending, 0U) << "the ring has room for it: it is sent at once";
    const std::uint64_t position = ring().written.exchange(before);
    ASSERT_NE(position, before);
    EXPECT_EQ(error_of(second), "none");
    EXPECT_EQ(receiving, 0U) << length;
    EXPECT_EQ(got, given) << length;
    std::vector<std::byte> next(1);
    std::size_t waiting = 0;
    post(second, Direction::receive, first, next, waiting);
    EXPECT_EQ(error_of(second), "none") << "the position is behind what was taken";
    ring().written = position;
    EXPECT_EQ(error_of(second), "none");
    EXPECT_EQ(waiting, 1U);
    post(first, Direction::send, second, next, sending);
    run(first, second);
    EXPECT_EQ(waiting, 0U);
  }
}

/// A position behind the last one that was seen was never written by a ring's writer.
TEST_F(NodeTransportTest, APositionThatGoesBackIsDamage) {
  std::vector<std::byte> data(100);
  std::size_t receiving = 0;
  exchange(100, 1);
  post(second, Direction::receive, first, data, receiving);
  EXPECT_EQ(error_of(second), "none") << "it has looked at the position";
  ring().written = MessageRing::line;
  EXPECT_EQ(error_of(second), "lost 2: the ring in shared memory is damaged");
}

TEST_F(NodeTransportTest, AnAddressThatNobodyMayReadIsAnotherMessage) {
  std::vector<std::byte> given(100000);
  std::size_t sending = 0;
  std::size_t receiving = 0;
  post(first, Direction::send, second, given, sending);
  EXPECT_EQ(error_of(first), "none");
  const std::uint64_t is_offered = std::uint64_t{1} << 62;
  std::uint64_t word = 0;
  std::memcpy(&word, ring().data(), sizeof word);
  word ^= is_offered;
  std::memcpy(ring().data(), &word, sizeof word);
  const Message message = {first, given.data(), given.size(), 7};
  EXPECT_FALSE(end(second).move_at_once(message, Direction::receive, Transport::Look::briefly));
  post(second, Direction::receive, first, given, receiving);
  EXPECT_EQ(error_of(second), "differs 2");
}

/// The lines of a long message's parts in the ring.
class DamagedLine : public NodeTransportTest {
 protected:
  DamagedLine() {
    post(first, Direction::send, second, given_, sending_);
    post(second, Direction::receive, first, got_, receiving_);
  }
  /// Sets the number after the word and `before` others of a line.
  void damage(std::size_t line, std::size_t before, std::uint64_t number) {
    std::memcpy(ring().data() + line * MessageRing::line + (1 + before) * RingEnd::word_bytes, &number, sizeof number);
  }
  static constexpr std::size_t length = 0;
  static constexpr std::size_t place = 1;

 private:
  std::vector<std::byte> given_ = pattern(100000, 1);
  std::vector<std::byte> got_ = std::vector<std::byte>(100000);
  std::size_t sending_ = 0;
  std::size_t receiving_ = 0;
};

TEST_F(DamagedLine, APlaceOutsideTheBlocksIsNoticed) {
  damage(0, place, capacity);
  EXPECT_EQ(error_of(second), "lost 2: the ring in shared memory is damaged");
}
TEST_F(DamagedLine, APartOfAnotherMessageIsNoticed) {
  damage(1, length, 99999);
  EXPECT_EQ(error_of(second), "lost 2: the ring in shared memory is damaged");
}
/// Where the word of the next part should be, there is something else.
TEST_F(DamagedLine, APartThatIsNotAnnouncedIsNoticedAfterALongWait) {
  std::uint64_t word = 7;
  std::memcpy(ring().data() + MessageRing::line, &word, sizeof word);
  EXPECT_EQ(error_of(second), "none") << "the first part";
  EXPECT_EQ(error_of(second), "none") << "it may be under way";
  while (!end(second).rest(1 << 20)) {
  }
  EXPECT_EQ(error_of(second), "lost 2: the ring in shared memory is damaged");
}
TEST_F(DamagedLine, APartThatHasNotComeIsWaitedFor) {
  ring().written = MessageRing::line;  // as if the writer had written the first only
  std::uint64_t word = 0;
  std::memcpy(ring().data() + MessageRing::line, &word, sizeof word);
  EXPECT_EQ(error_of(second), "none") << "the first part";
  while (!end(second).rest(1 << 20)) {
  }
  EXPECT_EQ(error_of(second), "none");
}
TEST_F(NodeTransportTest, AHeaderOfNonsenseIsAnotherMessage) {
  const std::uint64_t nonsense[2] = {7, ~std::uint64_t{0}};
  std::memcpy(ring().data(), nonsense, sizeof nonsense);
  ring().written = MessageRing::line;
  std::vector<std::byte> data(8);
  std::size_t left = 0;
  post(second, Direction::receive, first, data, left);
  EXPECT_EQ(error_of(second), "differs 2");
}

}  // namespace
}  // namespace amldist::collective
