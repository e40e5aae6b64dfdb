// Long messages between ranks of a node that are offered by the sender and fetched by the receiver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "node_transport_fixture.hpp"

namespace amldist::collective {
namespace {

/// Ranks that may read each other's memory, which is this process's for all of them.
class FetchedMessageTest : public NodeTransportTest {
 protected:
  FetchedMessageTest() : sample_(4711) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(peers_.open(i, sample_.address()));
    replace_ends(&peers_, false);
    for (std::size_t sent = 0; sent <= RingEnd::first_use; sent += 100000) exchange(100000, 0);
  }
  [[nodiscard]] std::uint64_t fetched() { return ring().fetched; }
  /// The turns of the other two ways: the next message is fetched.
  void copy_and_stream() {
    for (unsigned way = 0; way < 2; ++way) exchange(100000, way);
  }
  /// As if that were the fastest way of messages that go one way, all of which have been tried.
  void prefer(MessageWay way) {
    for (unsigned i = 0; i < tuning::messages_tried * message_ways; ++i) exchange(100000, i);
    PreferredWays ways;
    ways.set(tuning::message_class(100000, false), way);
    ring().preferred = ways.bits();
  }
  /// Posts a message that the receiver is going to fetch.
  void offer() {
    copy_and_stream();
    offer_next();
  }
  void offer_next() { post(first, Direction::send, second, given_, sending_); }
  /// As a blocking call does.
  [[nodiscard]] bool sends_at_once() {
    return end(first).move_at_once({second, given_.data(), given_.size(), 7}, Direction::send, briefly);
  }
  [[nodiscard]] bool receives_at_once() {
    return end(second).move_at_once({first, got_.data(), got_.size(), 7}, Direction::receive, briefly);
  }

  void receive_at_once() {
    EXPECT_TRUE(receives_at_once());
    EXPECT_EQ(got_, given_);
    run(first, second);
    EXPECT_EQ(sending_, 0U);
  }
  void resize(std::size_t bytes) {
    given_ = pattern(bytes, 2);
    got_.resize(bytes);
  }

  static constexpr auto briefly = Transport::Look::briefly;
  PeerMemory::Sample sample_;
  PeerMemory peers_{3};
  std::vector<std::byte> given_ = pattern(100000, 2);
  std::vector<std::byte> got_ = std::vector<std::byte>(100000);
  std::size_t sending_ = 0;
  std::size_t receiving_ = 0;
};

TEST_F(FetchedMessageTest, LongMessagesAreTriedInAllWaysAndArriveInAll) {
  std::uint64_t before = 0;
  for (const std::size_t length : {tuning::message_tried_from, 100000UL, 1UL << 20, 5000001UL}) {
    for (unsigned i = 0; i < 40; ++i) exchange(length, i);
    EXPECT_GE(fetched(), before + tuning::messages_tried) << length;
    before = fetched();
  }
}

TEST_F(FetchedMessageTest, OnesThatAreSentAtOnceCountAmongTheTrials) {
  const std::uint64_t before = fetched();
  std::vector<std::byte> given = pattern(10000, 1);
  for (unsigned i = 0; i < 40; ++i) {
    std::size_t left = 0;
    const Message message = {second, given.data(), given.size(), 7, false};
    if (!end(first).move_at_once(message, Direction::send, Transport::Look::once))
      post(first, Direction::send, second, given, left);
    std::vector<std::byte> got(given.size());
    post(second, Direction::receive, first, got, left);
    run(first, second);
    ASSERT_TRUE(left == 0 && got == given);
  }
  EXPECT_GE(fetched(), before + tuning::messages_tried);
}

/// The kernel gives the blocks' memory page by page: messages that wait for that say nothing about the way.
TEST_F(FetchedMessageTest, NothingIsTriedBeforeTheBlocksWereUsed) {
  replace_ends(&peers_, false);                     // as at first
  for (int i = 0; i < 500; ++i) exchange(4000, 1);  // these are in the ring
  const std::uint64_t before = fetched();
  for (std::size_t i = 0; i < RingEnd::first_use / tuning::message_tried_from; ++i)
    exchange(tuning::message_tried_from, 1);
  EXPECT_EQ(fetched(), before);
}

TEST_F(FetchedMessageTest, WhereRanksShareProcessorsTheLengthDecides) {
  replace_ends(&peers_, true);
  for (unsigned i = 0; i < 80; ++i) exchange((1UL << 20) - 1, i);
  EXPECT_EQ(fetched(), 0U);
  for (unsigned i = 0; i < 3; ++i) exchange(1UL << 20, i);
  EXPECT_EQ(fetched(), 3U);
  replace_ends(nullptr, true);
  exchange(1UL << 20, 1);
  EXPECT_EQ(fetched(), 0U) << "the kernel does not allow it";
}

TEST_F(FetchedMessageTest, WhereRanksShareProcessorsAWindowIsFetchedFromAQuarterOfThat) {
  constexpr std::size_t length = 256UL << 10;
  const auto send_a_window = [&](std::size_t bytes, bool both_ways) {
    replace_ends(&peers_, true);
    std::vector<std::vector<std::byte>> given;
    std::vector<std::vector<std::byte>> got(12, std::vector<std::byte>(bytes));
    for (unsigned i = 0; i < 6; ++i) given.push_back(pattern(bytes, i));
    std::size_t left = 0;
    for (std::size_t i = 0; i < 6; ++i) {
      post(second, Direction::receive, first, got[i], left);
      if (both_ways) post(first, Direction::receive, second, got[6 + i], left);
    }
    for (auto& each : given) {
      post(first, Direction::send, second, each, left);
      if (both_ways) post(second, Direction::send, first, each, left);
    }
    run(first, second);
    EXPECT_EQ(left, 0U);
    for (std::size_t i = 0; i < (both_ways ? 12 : 6); ++i) EXPECT_EQ(got[i], given[i % 6]);
    return fetched();
  };
  EXPECT_EQ(send_a_window(length, false), 5U) << "nothing was sent before the first";
  EXPECT_EQ(send_a_window(length - 1, false), 0U);
  EXPECT_EQ(send_a_window(length, true), 0U);
  EXPECT_EQ(send_a_window(1UL << 20, true), 6U);
}

TEST_F(FetchedMessageTest, ShortMessagesNeverAre) {
  for (unsigned i = 0; i < 40; ++i) exchange(tuning::message_tried_from - 1, i);
  EXPECT_EQ(fetched(), 0U);
}

TEST_F(FetchedMessageTest, ASendIsCompleteWhenTheReceiverHasAllOfIt) {
  offer();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of(first), "none");
  EXPECT_EQ(sending_, 1U);
  post(second, Direction::receive, first, got_, receiving_);
  run(first, second);
  EXPECT_EQ(sending_, 0U);
  EXPECT_EQ(got_, given_);
}

/// If only one were offered, the receiver would wait after each message until its sender looks, which may be busy with
/// fetching messages itself.
TEST_F(FetchedMessageTest, SixteenAreOfferedAndTheReceiverTakesATurnsBytes) {
  prefer(MessageWay::fetched);
  constexpr std::size_t messages = 20;
  constexpr std::size_t offered = 16;
  std::vector<std::vector<std::byte>> given;
  std::vector<std::vector<std::byte>> got(messages, std::vector<std::byte>(100000));
  for (unsigned i = 0; i < messages; ++i) given.push_back(pattern(100000, i));
  for (auto& each : given) post(first, Direction::send, second, each, sending_);
  for (auto& each : got) post(second, Direction::receive, first, each, receiving_);
  EXPECT_EQ(error_of(first), "none");
  const std::uint64_t before = fetched();
  EXPECT_EQ(error_of(second), "none");
  EXPECT_EQ(fetched(), before + 2) << "128 KiB, of messages of 100,000 bytes";
  for (std::size_t i = 0; i < messages; ++i) EXPECT_EQ(error_of(second), "none");
  EXPECT_EQ(fetched(), before + offered) << "the sender has done nothing meanwhile";
  run(first, second);
  EXPECT_EQ(sending_ + receiving_, 0U);
  EXPECT_EQ(fetched(), before + messages);
  EXPECT_EQ(got, given);
}

/// As tagged messages do, each of which follows one with its tag.
TEST_F(FetchedMessageTest, ShortMessagesBetweenThoseThatAreOfferedDoNotHoldThemUp) {
  prefer(MessageWay::fetched);
  std::vector<std::vector<std::byte>> given;
  for (unsigned i = 0; i < 8; ++i) given.push_back(pattern(i % 2 == 0 ? 24 : 100000, i));
  std::vector<std::vector<std::byte>> got;
  for (auto& each : given) got.emplace_back(each.size());
  for (auto& each : given) post(first, Direction::send, second, each, sending_);
  for (auto& each : got) post(second, Direction::receive, first, each, receiving_);
  EXPECT_EQ(error_of(first), "none");
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_EQ(error_of(second), "none");
  EXPECT_EQ(receiving_, 0U) << "the sender has done nothing meanwhile";
  run(first, second);
  EXPECT_EQ(sending_, 0U);
  EXPECT_EQ(got, given);
  exchange(50, 9);  // nothing was put twice
}

/// Their sender has nothing to do for them any more, but to say so.
TEST_F(FetchedMessageTest, EachSendThatEndsIsReportedWhenItEnds) {
  prefer(MessageWay::fetched);
  std::vector<std::vector<std::byte>> given;
  for (unsigned i = 0; i < 24; ++i) given.push_back(pattern(i % 15 == 0 ? 100000 : 8000, i));  // two are offered
  std::vector<std::vector<std::byte>> got;
  for (auto& each : given) got.emplace_back(each.size());
  for (unsigned round = 0; round < 20; ++round) {
    for (auto& each : given) post(first, Direction::send, second, each, sending_);
    for (auto& each : got) post(second, Direction::receive, first, each, receiving_);
    EXPECT_EQ(error_of(first), "none");  // sixteen are offered or put behind what is offered
    while (sending_ != 0) {
      while (*end(second).progress(watchdog)) continue;  // it takes all that is there
      const std::size_t before = sending_;
      const auto moved = end(first).progress(watchdog);
      ASSERT_TRUE(moved);
      EXPECT_TRUE(*moved || sending_ == before) << before;
    }
    run(first, second);
  }
  EXPECT_EQ(got, given);
}

TEST_F(FetchedMessageTest, AShortMessageBehindThoseThatAreOfferedArrives) {
  prefer(MessageWay::fetched);
  std::vector<std::vector<std::byte>> given = {pattern(100000, 1), pattern(100, 2), pattern(100000, 3), pattern(0, 4)};
  std::vector<std::vector<std::byte>> got;
  for (auto& each : given) got.emplace_back(each.size());
  for (auto& each : given) post(first, Direction::send, second, each, sending_);
  for (auto& each : got) post(second, Direction::receive, first, each, receiving_);
  run(first, second);
  EXPECT_EQ(sending_ + receiving_, 0U);
  EXPECT_EQ(got, given);
}

/// Where a rank copies into one ring and out of the other, the ways take other times. It has one receive under way
/// where ranks take turns, and several where messages go both ways at once.
TEST_F(FetchedMessageTest, MessagesThatGoBothWaysAtOnceAreTriedApart) {
  prefer(MessageWay::copied);
  for (const std::size_t receives : {1UL, 2UL}) {
    const std::uint64_t before = fetched();
    for (unsigned i = 0; i < tuning::messages_tried * message_ways; ++i) {
      std::vector<std::byte> given = pattern(100000, i);
      std::vector<std::vector<std::byte>> got(receives + 1, std::vector<std::byte>(100000));
      std::size_t left = 0;
      for (std::size_t each = 0; each < receives; ++each) post(first, Direction::receive, second, got[each], left);
      post(first, Direction::send, second, given, left);
      post(second, Direction::receive, first, got.back(), left);
      run(first, second);
      for (std::size_t each = 0; each < receives; ++each) post(second, Direction::send, first, given, left);
      run(first, second);
      EXPECT_TRUE(left == 0 && std::ranges::all_of(got, [&](const auto& each) { return each == given; }));
    }
    EXPECT_EQ(fetched(), before + (receives > 1 ? tuning::messages_tried : 0)) << receives;
  }
}

/// As on a busy machine, where the sender loses its processor between the two.
TEST_F(FetchedMessageTest, AMessageIsFetchedBeforeThePositionArrives) {
  copy_and_stream();
  const std::uint64_t before = ring().written;
  offer_next();
  const std::uint64_t position = ring().written.exchange(before);
  ASSERT_NE(position, before);
  post(second, Direction::receive, first, got_, receiving_);
  EXPECT_EQ(error_of(second), "none");
  EXPECT_EQ(got_, given_);
  std::vector<std::byte> next(1);
  std::size_t waiting = 0;
  post(second, Direction::receive, first, next, waiting);
  EXPECT_EQ(error_of(second), "none") << "the next message is not there";
  ring().written = position;
  post(first, Direction::send, second, next, sending_);
  run(first, second);
  EXPECT_EQ(sending_ + waiting, 0U);
}

TEST_F(FetchedMessageTest, ABlockingReceiveFetchesWhatIsOffered) {
  offer();
  EXPECT_EQ(error_of(first), "none");
  receive_at_once();
  exchange(100000, 3);
}

TEST_F(FetchedMessageTest, ABlockingSendIsOfferedAndGoneOnWith) {
  copy_and_stream();
  const std::uint64_t before = fetched();
  EXPECT_FALSE(sends_at_once()) << "nobody receives it";
  post(first, Direction::send, second, given_, sending_);
  receive_at_once();
  EXPECT_EQ(fetched(), before + 1) << "it was offered once";
  exchange(100000, 3);
}

TEST_F(FetchedMessageTest, ABlockingReceiveFetchesALongMessageInParts) {
  resize(3UL << 20);
  for (unsigned way = 0; way < 2; ++way) exchange(given_.size(), way);
  offer_next();
  EXPECT_EQ(error_of(first), "none");
  receive_at_once();
}

TEST_F(FetchedMessageTest, ABlockingSendWithoutRoomForItsOfferIsGoneOnWith) {
  copy_and_stream();
  const std::vector<std::byte> wanted = given_;
  resize(100);
  int sent = 0;
  while (sends_at_once()) ++sent;
  const std::vector<std::byte> small = std::exchange(given_, wanted);
  EXPECT_FALSE(sends_at_once());
  for (; sent > 0; --sent) ASSERT_TRUE(receives_at_once());
  EXPECT_EQ(got_, small);
  got_.resize(given_.size());
  const std::uint64_t before = fetched();
  post(first, Direction::send, second, given_, sending_);
  receive_at_once();
  EXPECT_EQ(fetched(), before + 1);
}

TEST_F(FetchedMessageTest, ABlockingSendLeavesADamagedRingForPost) {
  copy_and_stream();
  ring().fetched = 77;
  EXPECT_FALSE(sends_at_once());
  const auto posted = end(first).post({second, given_.data(), given_.size(), 7}, Direction::send, sending_, watchdog);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().message, "lost 5: the ring in shared memory is damaged");
}

TEST_F(FetchedMessageTest, ALengthOfNoMemoryIsNoOffer) {
  prefer(MessageWay::copied);
  const std::uint64_t at = ring().written;
  post(first, Direction::send, second, given_, sending_);
  const std::uint64_t length = given_.size() | MessageStart::fetched_bit;
  std::memcpy(ring().data() + at % ring_capacity + RingEnd::word_bytes, &length, sizeof length);
  EXPECT_FALSE(receives_at_once());
  post(second, Direction::receive, first, got_, receiving_);
  EXPECT_EQ(error_of(second), "differs 2");
}

TEST_F(FetchedMessageTest, BothEndsOfBlockingMessagesGoOnTogether) {
  prefer(MessageWay::fetched);
  constexpr int messages = 50;
  const auto move = [&](int rank, Direction direction, std::size_t& left) {
    WitnessWatchdog own;
    std::vector<std::byte>& data = direction == Direction::send ? given_ : got_;
    if (direction == Direction::send ? sends_at_once() : receives_at_once()) return;
    EXPECT_TRUE(end(rank).post({rank == first ? second : first, data.data(), data.size(), 7}, direction, left, own));
    while (left != 0) EXPECT_TRUE(end(rank).progress(own));
  };
  std::thread sender([&] {
    for (int i = 0; i < messages; ++i) move(first, Direction::send, sending_);
  });
  for (int i = 0; i < messages; ++i) {
    got_.assign(got_.size(), std::byte{0});
    move(second, Direction::receive, receiving_);
    EXPECT_EQ(got_, given_);
  }
  sender.join();
}

TEST_F(FetchedMessageTest, ABlockingSendThatIsGivenUpIsNotBelieved) {
  copy_and_stream();
  EXPECT_FALSE(sends_at_once());
  end(first).give_up();
  EXPECT_FALSE(receives_at_once());
  post(second, Direction::receive, first, got_, receiving_);
  EXPECT_EQ(error_of(second), "lost 2: it has given up the call");
}

TEST_F(FetchedMessageTest, ASenderThatGaveUpIsNotBelieved) {
  offer();
  EXPECT_EQ(error_of(first), "none");
  end(first).give_up();
  post(second, Direction::receive, first, got_, receiving_);
  EXPECT_EQ(error_of(second), "lost 2: it has given up the call");
}

/// A message is offered from a buffer that is not its sender's memory.
class BadBufferTest : public FetchedMessageTest {
 protected:
  BadBufferTest() {
    copy_and_stream();
    auto* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{4096});
    EXPECT_TRUE(end(first).post({second, nowhere, got.size(), 7, false}, Direction::send, sending, watchdog));
    EXPECT_EQ(error_of(first), "none");
  }
  std::vector<std::byte> got = std::vector<std::byte>(100000);
  std::size_t sending = 0;
  std::size_t receiving = 0;
};

/// Its program may have freed the buffer since.
TEST_F(BadBufferTest, IsNotBlamedWhereTheSenderGaveUp) {
  end(first).give_up();
  post(second, Direction::receive, first, got, receiving);
  EXPECT_EQ(error_of(second), "lost 2: it has given up the call");
}

TEST_F(BadBufferTest, IsTheSendersError) {
  const Message message = {first, got.data(), got.size(), 7};
  EXPECT_FALSE(end(second).move_at_once(message, Direction::receive, briefly)) << "progress() has the error";
  post(second, Direction::receive, first, got, receiving);
  EXPECT_EQ(error_of(second),
            "rank 2 on node7 gave a buffer to send of which 100000 bytes are not its memory, or the kernel shows them "
            "to no other process (Bad address): for the latter set AMLDIST_SINGLE_COPY=off");
}

TEST_F(FetchedMessageTest, AnImpossibleCountOfFetchedMessagesIsDamage) {
  copy_and_stream();
  std::vector<std::byte> given = pattern(100000, 2);
  std::size_t sending = 0;
  post(first, Direction::send, second, given, sending);
  EXPECT_EQ(error_of(first), "none");
  ring().fetched = 77;
  EXPECT_EQ(error_of(first), "lost 5: the ring in shared memory is damaged");
}

TEST_F(FetchedMessageTest, ACountOfFetchedMessagesThatGoesBackIsDamage) {
  prefer(MessageWay::fetched);
  exchange(100000, 1);
  offer_next();
  EXPECT_EQ(error_of(first), "none");
  ring().fetched = 0;
  EXPECT_EQ(error_of(first), "lost 5: the ring in shared memory is damaged");
}

}  // namespace
}  // namespace amldist::collective
