// Messages with tags between two ranks of a node. Both ends are in one process, so that a test decides which end makes
// progress.
#include "collective/transport/matching_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "collective/transport/loopback_transport.hpp"
#include "collective/transport/node_transport.hpp"
#include "ends_in_one_process.hpp"

namespace amldist::collective::matching_transport_test {
namespace {

/// Stands for the other nodes: there are no others.
class Nowhere final : public Transport {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "nowhere"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return 4096; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return true; }
  [[nodiscard]] Result<void> post(const Message& /*message*/, Direction /*direction*/, std::size_t& /*left*/,
                                  calls::Watchdog& /*watchdog*/) override {
    return Error{Errc::internal, "nowhere"};
  }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& /*watchdog*/) override { return false; }
  bool rest(int /*idle*/) override { return true; }
  [[nodiscard]] int awaited() const noexcept override { return calls::Watchdog::anyone; }
  void give_up() noexcept override {}
};

/// Three ranks, 0 to 2.
class MatchingTransportTest : public ::testing::Test {
 protected:
  MatchingTransportTest() : MatchingTransportTest(nullptr) {}
  /// `peers`: the ranks may read each other's memory, and have a processor each.
  explicit MatchingTransportTest(const PeerMemory* peers)
      : peers_(peers), memory_(make_memory(2 * NodeTransport::memory_bytes(3))) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      ends_.push_back(std::make_unique<MatchingTransport>(
          node(i, 0), 3, [this, i] { return node(i, NodeTransport::memory_bytes(3)); }, [] {}));
    }
  }
  [[nodiscard]] MatchingTransport& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }
  void send(int from, int to, int tag, std::vector<std::byte>& data, std::size_t& left, std::uint32_t signature = 7) {
    EXPECT_TRUE(end(from).post({to, data.data(), data.size(), signature, false, tag}, Direction::send, left, watchdog));
  }
  void receive(int at, int from, int tag, std::vector<std::byte>& data, std::size_t& left, int* source = nullptr) {
    EXPECT_TRUE(
        end(at).post({from, data.data(), data.size(), 7, false, tag, source}, Direction::receive, left, watchdog));
  }
  void run() { run_until_idle(ends_, watchdog); }
  /// A message from rank 0 to rank 1. `is_early`: it arrives before its receive.
  void exchange(std::size_t length, unsigned salt, bool is_early) {
    std::vector<std::byte> given = pattern(length, salt);
    std::vector<std::byte> got(length);
    std::size_t left = 0;
    if (is_early) send(0, 1, 5, given, left);
    if (is_early) run();
    receive(1, 0, 5, got, left);
    if (!is_early) send(0, 1, 5, given, left);
    run();
    EXPECT_EQ(left, 0U) << length;
    EXPECT_EQ(got, given) << length;
  }
  /// Messages with tags that rank 1 has fetched from rank 0.
  [[nodiscard]] std::uint64_t fetched() {
    auto* const rings = memory_.data() + NodeTransport::memory_bytes(3);
    return reinterpret_cast<MessageRing*>(rings + MessageRing::bytes_of(3))->fetched;
  }

  WitnessWatchdog watchdog;

 private:
  [[nodiscard]] std::unique_ptr<Transport> node(std::uint32_t rank, std::size_t offset) {
    return std::make_unique<NodeTransport>(
        std::make_unique<LoopbackTransport>(std::make_unique<Nowhere>(), static_cast<int>(rank)),
        memory_.data() + offset, NodeGroup{rank, 3, {0, 1, 2}, "node7"}, peers_ == nullptr, peers_);
  }
  const PeerMemory* peers_;
  SharedMemory memory_;
  std::vector<std::unique_ptr<MatchingTransport>> ends_;
};

struct ReadableMemory {
  ReadableMemory() {
    for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(peers.open(rank, sample.address()));
  }
  PeerMemory::Sample sample{4711};
  PeerMemory peers{3};
};
/// Long messages, some of which the receiver fetches from the sender's memory.
class TaggedMessagesThatAreOffered : private ReadableMemory, public MatchingTransportTest {
 protected:
  static constexpr std::size_t length = 100000;
  TaggedMessagesThatAreOffered() : MatchingTransportTest(&peers) {}
};

TEST_F(TaggedMessagesThatAreOffered, ArriveBeforeTheirReceivesAndAfterThem) {
  for (unsigned i = 0; i < 60; ++i) exchange(length, i, i % 2 == 0);
  EXPECT_GE(fetched(), tuning::messages_tried);
}

TEST_F(TaggedMessagesThatAreOffered, ArriveInAnyOrderOfTheirReceives) {
  constexpr unsigned several = 8;
  for (unsigned round = 0; round < 8; ++round) {
    std::vector<std::vector<std::byte>> given;
    std::vector<std::vector<std::byte>> got(several, std::vector<std::byte>(length));
    std::size_t left = 0;
    for (unsigned i = 0; i < several; ++i) given.push_back(pattern(length, round * several + i));
    for (unsigned i = 0; i < several; ++i) send(0, 1, static_cast<int>(i), given[i], left);
    if (round % 2 == 0) run();
    for (unsigned i = several; i-- > 0;) receive(1, 0, static_cast<int>(i), got[i], left);
    run();
    ASSERT_EQ(left, 0U) << round;
    ASSERT_EQ(got, given) << round;
  }
  EXPECT_GE(fetched(), tuning::messages_tried);
}

/// Short data travels in the packet, long data after it.
TEST_F(MatchingTransportTest, EveryLengthArrives) {
  for (const std::size_t length : {0UL, 1UL, 4UL, 48UL, 1000UL, 1511UL, 1512UL, 1513UL, 5000UL, 1UL << 20}) {
    for (const bool is_early : {false, true}) exchange(length, 3, is_early);
  }
}

TEST_F(MatchingTransportTest, TagsDecideAndNotTheOrder) {
  std::deque<std::vector<std::byte>> given;
  std::deque<std::vector<std::byte>> got;
  std::size_t left = 0;
  constexpr std::size_t lengths[] = {4, 3000, 0, 1512, 100, 1513};
  for (int tag = 0; tag < 60; ++tag) {
    given.push_back(pattern(lengths[tag % 6], static_cast<unsigned>(tag)));
    send(0, 1, tag, given.back(), left);
  }
  for (int tag = 59; tag >= 0; --tag) {
    got.emplace_front(lengths[tag % 6]);
    receive(1, 0, tag, got.front(), left);
    if (tag % 7 == 0) run();
  }
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
}

TEST_F(MatchingTransportTest, AnySourceIsTold) {
  std::vector<std::byte> given[2] = {pattern(10, 1), pattern(2000, 2)};
  std::vector<std::byte> got[2] = {std::vector<std::byte>(10), std::vector<std::byte>(2000)};
  int sources[2] = {-1, -1};
  std::size_t left = 0;
  receive(1, calls::Watchdog::anyone, 4, got[0], left, &sources[0]);
  receive(1, calls::Watchdog::anyone, 8, got[1], left, &sources[1]);
  send(2, 1, 8, given[1], left);
  run();
  send(0, 1, 4, given[0], left);
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(sources[0], 0);
  EXPECT_EQ(sources[1], 2);
  EXPECT_EQ(got[0], given[0]);
  EXPECT_EQ(got[1], given[1]);
}

TEST_F(MatchingTransportTest, AShortSendEndsAtOnceOnceTheRingsAreThere) {
  std::vector<std::byte> data = pattern(100, 1);
  std::size_t left = 0;
  EXPECT_FALSE(end(0).posts_at_once(1, 3)) << "the rings are made for the first one";
  send(0, 1, 3, data, left);
  EXPECT_EQ(left, 0U);
  EXPECT_TRUE(end(0).posts_at_once(1, 3));
  EXPECT_TRUE(end(0).posts_at_once(calls::Watchdog::anyone, 3));
}

TEST_F(MatchingTransportTest, AnotherLengthOrTypeIsNoticed) {
  std::vector<std::byte> given = pattern(100, 1);
  std::vector<std::byte> shorter(99);
  std::size_t left = 0;
  receive(1, 0, 3, shorter, left);
  send(0, 1, 3, given, left);
  ASSERT_TRUE(end(0).progress(watchdog));
  auto moved = end(1).progress(watchdog);
  EXPECT_EQ(moved ? "none" : moved.error().message, "differs 0");
  receive(2, 0, 3, given, left);
  send(0, 2, 3, given, left, 8);
  ASSERT_TRUE(end(0).progress(watchdog));
  moved = end(2).progress(watchdog);
  EXPECT_EQ(moved ? "none" : moved.error().message, "differs 0");
}

/// The length is what the other rank says: nobody can have so much memory.
TEST_F(MatchingTransportTest, OneThatNoMemoryHoldsEndsTheCall) {
  std::vector<std::byte> given(1UL << 20);
  std::vector<std::byte> got(4);
  std::size_t sending = 0;
  std::size_t left = 0;
  EXPECT_TRUE(end(0).post({1, given.data(), 1UL << 63, 7, false, 9}, Direction::send, sending, watchdog));
  receive(1, 0, 3, got, left);
  const auto moved = end(1).progress(watchdog);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message,
            "rank 0 has sent 9223372036854775808 bytes for which no receive has begun, and there is no memory to keep "
            "them: begin the receive first, or send less");
}

/// Rings do not report a death.
TEST_F(MatchingTransportTest, RanksOfMessagesWithAndWithoutTagsAreWatched) {
  std::vector<std::byte> got(4);
  std::size_t left = 0;
  EXPECT_TRUE(end(1).post({0, got.data(), got.size(), 7, false}, Direction::receive, left, watchdog));
  receive(1, 0, 3, got, left);
  receive(1, 2, 3, got, left);
  ASSERT_TRUE(end(1).progress(watchdog));
  ASSERT_TRUE(end(1).keep_waiting(watchdog));
  EXPECT_TRUE(std::ranges::find(watchdog.asked, 0) != watchdog.asked.end());
  EXPECT_TRUE(std::ranges::find(watchdog.asked, 2) != watchdog.asked.end());
}

TEST_F(MatchingTransportTest, WhatIsGivenUpIsForgotten) {
  std::vector<std::byte> data = pattern(100, 1);
  std::vector<std::byte> got(100);
  std::size_t left = 0;
  receive(1, 0, 3, got, left);
  run();
  EXPECT_EQ(end(1).awaited(), 0);
  end(1).give_up();
  EXPECT_EQ(end(1).awaited(), calls::Watchdog::anyone);
}

// ---- at once ----
class TagsAtOnce : public MatchingTransportTest {
 protected:
  /// The transport of tagged messages is made by the first one.
  TagsAtOnce() {
    std::vector<std::byte> data(4);
    std::size_t left = 0;
    send(0, 1, 1, data, left);
    receive(1, 0, 1, data, left);
    run();
  }
  [[nodiscard]] bool sends(int tag) {
    return end(0).move_at_once({1, given.data(), given.size(), 7, false, tag}, Direction::send, Transport::Look::once);
  }
  [[nodiscard]] bool receives(int from, int tag, int* source = nullptr) {
    return end(1).move_at_once({from, got.data(), got.size(), 7, false, tag, source}, Direction::receive,
                               Transport::Look::briefly);
  }
  std::vector<std::byte> given = pattern(100, 1);
  std::vector<std::byte> got = std::vector<std::byte>(100);
};

TEST_F(TagsAtOnce, OneArrivesWhetherItsSourceIsNamedOrNot) {
  for (const int from : {0, calls::Watchdog::anyone}) {
    got.assign(100, std::byte{0});
    int source = -1;
    EXPECT_FALSE(receives(from, 3, &source));
    ASSERT_TRUE(sends(3));
    ASSERT_TRUE(receives(from, 3, &source));
    EXPECT_EQ(got, given);
    EXPECT_EQ(source, 0);
  }
}

TEST_F(TagsAtOnce, OneWithAnotherTagWaitsForItsReceive) {
  ASSERT_TRUE(sends(4));
  given = pattern(100, 2);
  ASSERT_TRUE(sends(3));
  EXPECT_FALSE(receives(0, 3));
  EXPECT_FALSE(receives(calls::Watchdog::anyone, 3));
  std::size_t left = 0;
  receive(1, 0, 3, got, left);
  run();
  EXPECT_EQ(got, pattern(100, 2));
  receive(1, 0, 4, got, left);
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, pattern(100, 1));
}

TEST_F(TagsAtOnce, AReceiveThatWaitsComesFirst) {
  std::size_t left = 0;
  std::vector<std::byte> earlier(100);
  receive(1, 0, 3, earlier, left);
  ASSERT_TRUE(sends(3));
  EXPECT_FALSE(receives(0, 3));
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(earlier, given);
}

TEST_F(TagsAtOnce, TheDataOfALongOneFollowsItsPacket) {
  given = pattern(1513, 1);
  got.resize(1513);
  EXPECT_FALSE(sends(3)) << "it is looked at once";
  std::size_t left = 0;
  send(0, 1, 3, given, left);
  EXPECT_TRUE(receives(0, 3));
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
}

TEST_F(TagsAtOnce, OneOfAnotherLengthIsLeftForPost) {
  ASSERT_TRUE(sends(3));
  got.resize(99);
  EXPECT_FALSE(receives(0, 3));
  std::size_t left = 0;
  receive(1, 0, 3, got, left);
  const auto moved = end(1).progress(watchdog);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "differs 0");
}

}  // namespace
}  // namespace amldist::collective::matching_transport_test
