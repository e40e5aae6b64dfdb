// Long messages that begin at once and go on while the other rank does its part, with and without tags.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "base/os/processor_place.hpp"
#include "collective/transport/matching_transport.hpp"
#include "collective/transport/node_transport.hpp"
#include "ends_in_one_process.hpp"

namespace amldist::collective::messages_in_step_test {
namespace {

struct Case {
  int tag;
  bool share_processors;
};

/// Ranks 0 to 2 of a node, with a processor for each of them unless they share some.
class MessagesInStep : public ::testing::TestWithParam<Case> {
 protected:
  MessagesInStep() : memory_(make_memory(2 * NodeTransport::memory_bytes(3))) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto make = [this, i] { return node(i, NodeTransport::memory_bytes(3)); };
      ends_.push_back(std::make_unique<MatchingTransport>(node(i, 0), 3, make, [] {}));
    }
    std::vector<std::byte> data(4);  // the first message with a tag makes what carries them
    for (const int from : {0, 2}) exchange(from, data);
  }
  [[nodiscard]] Message message(int peer, std::vector<std::byte>& data) const {
    return {peer, data.data(), data.size(), 7, false, GetParam().tag, nullptr};
  }
  [[nodiscard]] bool moves(int rank, Direction direction, int peer, std::vector<std::byte>& data) {
    return end(rank).move_at_once(message(peer, data), direction, Transport::Look::briefly);
  }
  void post(int rank, Direction direction, int peer, std::vector<std::byte>& data, std::size_t& left) {
    EXPECT_TRUE(end(rank).post(message(peer, data), direction, left, watchdog));
  }
  void run() { run_until_idle(ends_, watchdog); }
  /// From a rank to rank 1.
  void exchange(int from, const std::vector<std::byte>& data) {
    std::vector<std::byte> given = data;
    std::vector<std::byte> got(data.size());
    std::size_t left = 0;
    post(from, Direction::send, 1, given, left);
    post(1, Direction::receive, from, got, left);
    run();
    EXPECT_EQ(left, 0U);
    EXPECT_EQ(got, given);
  }
  [[nodiscard]] MatchingTransport& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

  WitnessWatchdog watchdog;

 private:
  [[nodiscard]] std::unique_ptr<Transport> node(std::uint32_t rank, std::size_t offset) {
    return std::make_unique<NodeTransport>(std::make_unique<OtherNodes>(elsewhere_[rank]), memory_.data() + offset,
                                           NodeGroup{rank, 3, {0, 1, 2}, "node7"}, GetParam().share_processors);
  }
  std::array<std::vector<int>, 3> elsewhere_;  // of each rank: two may be used at once
  SharedMemory memory_;
  std::vector<std::unique_ptr<MatchingTransport>> ends_;
};

constexpr std::size_t lengths[] = {4097, 5000, 6100, 8192, 16384, 24000, 65536, 131072, 300001, 3UL << 20};

/// From which PendingMessages takes the times of a message.
TEST_P(MessagesInStep, AReceiveKnowsWhetherItWaited) {
  std::vector<std::byte> given = pattern(8, 1);
  std::vector<std::byte> got(8);
  ASSERT_TRUE(moves(0, Direction::send, 1, given));
  ASSERT_TRUE(moves(1, Direction::receive, 0, got));
  const auto at_once = end(1).vain_looks(message(0, got));
  ASSERT_TRUE(at_once);
  EXPECT_EQ(at_once->first, 0U);
  EXPECT_FALSE(moves(1, Direction::receive, 0, got));
  const auto in_vain = end(1).vain_looks(message(0, got));
  ASSERT_TRUE(in_vain);
  EXPECT_NE(in_vain->first, 0U);
  EXPECT_EQ(in_vain->last == 0, GetParam().share_processors) << "a yield may take long";
}

TEST_P(MessagesInStep, ALongReceiveDoesNotKnowHowLongItTook) {
  std::vector<std::byte> data(16384);
  ASSERT_TRUE(moves(0, Direction::send, 1, data));
  ASSERT_TRUE(moves(1, Direction::receive, 0, data));
  EXPECT_FALSE(end(1).vain_looks(message(0, data)));
}

TEST_P(MessagesInStep, WhatTheBlocksHoldIsSentAndReceivedAtOnce) {
  for (const std::size_t length : {4097UL, 6080UL, 7000UL, 8192UL, 16384UL, 16385UL, 24576UL, 40000UL, 65536UL}) {
    for (unsigned round = 0; round < 10; ++round) {  // past a block's end
      std::vector<std::byte> given = pattern(length, round);
      std::vector<std::byte> got(length);
      ASSERT_TRUE(moves(0, Direction::send, 1, given)) << length;
      ASSERT_TRUE(moves(1, Direction::receive, 0, got)) << length;
      ASSERT_EQ(got, given) << length;
    }
  }
}

TEST_P(MessagesInStep, BothEndsGoOnTogether) {
  for (const std::size_t length : lengths) {
    std::vector<std::byte> given = pattern(length, 1);
    std::vector<std::byte> got(length);
    const auto move = [this](int rank, Direction direction, int peer, std::vector<std::byte>& data) {
      std::size_t left = 0;
      WitnessWatchdog own;
      if (moves(rank, direction, peer, data)) return;
      EXPECT_TRUE(end(rank).post(message(peer, data), direction, left, own));
      while (left != 0) EXPECT_TRUE(end(rank).progress(own));
    };
    std::thread sender([&] { move(0, Direction::send, 1, given); });
    move(1, Direction::receive, 0, got);
    sender.join();
    ASSERT_EQ(got, given) << length;
  }
}

TEST_P(MessagesInStep, ASendWhoseReceiverPausesIsGoneOnWith) {
  std::vector<std::byte> given = pattern(1UL << 20, 1);
  std::vector<std::byte> got(given.size());
  EXPECT_FALSE(moves(0, Direction::send, 1, given));
  std::size_t left = 0;
  post(0, Direction::send, 1, given, left);
  EXPECT_EQ(left, 1U);
  post(1, Direction::receive, 0, got, left);
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
  exchange(0, pattern(100000, 2));
}

TEST_P(MessagesInStep, OneThatHasBegunIsNotBegunAgain) {
  std::vector<std::byte> given = pattern(65536, 1);
  std::vector<std::byte> got(given.size());
  int sent = 0;
  while (moves(0, Direction::send, 1, given)) ++sent;  // until the blocks are full
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(moves(1, Direction::receive, 0, got));
  got.assign(got.size(), {});
  std::size_t left = 0;
  if (!moves(0, Direction::send, 1, given)) post(0, Direction::send, 1, given, left);  // there is room now
  post(1, Direction::receive, 0, got, left);
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
  exchange(0, pattern(65536, 2));
}

TEST_P(MessagesInStep, AReceiveWhoseSenderPausesIsGoneOnWith) {
  std::vector<std::byte> given = pattern(1UL << 20, 1);
  std::vector<std::byte> got(given.size());
  std::size_t left = 0;
  post(0, Direction::send, 1, given, left);
  EXPECT_FALSE(moves(1, Direction::receive, 0, got));
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1000, given.begin())) << "it has begun";
  std::vector<std::byte> other(100);
  std::size_t others = 0;
  post(1, Direction::receive, 2, other, others);  // of another rank
  post(1, Direction::receive, 0, got, left);
  run();
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(got, given);
  EXPECT_EQ(others, 1U);
  exchange(0, pattern(100000, 2));
}

TEST_P(MessagesInStep, OneOfAnotherLengthIsLeftForPost) {
  std::vector<std::byte> given(20000);
  std::vector<std::byte> got(20001);
  ASSERT_TRUE(moves(0, Direction::send, 1, given));
  EXPECT_FALSE(moves(1, Direction::receive, 0, got));
  std::size_t left = 0;
  post(1, Direction::receive, 0, got, left);
  const auto moved = end(1).progress(watchdog);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message, "differs 0");
}

constexpr Case untagged = {Message::untagged, false};
constexpr Case tagged = {5, false};
constexpr Case untagged_sharing = {Message::untagged, true};
constexpr Case tagged_sharing = {5, true};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.tag == Message::untagged ? "Untagged" : "Tagged") +
         (info.param.share_processors ? "Sharing" : "");
}
INSTANTIATE_TEST_SUITE_P(Kinds, MessagesInStep, ::testing::Values(untagged, tagged, untagged_sharing, tagged_sharing),
                         name_of);

using MessagesFromAnySource = MessagesInStep;

TEST_P(MessagesFromAnySource, TheOneThatHasBegunIsReceivedBeforeOthers) {
  constexpr int any = calls::Watchdog::anyone;
  std::vector<std::byte> first = pattern(100, 1);
  std::vector<std::byte> got(first.size());
  std::size_t left = 0;
  post(1, Direction::receive, any, got, left);
  run();
  post(0, Direction::send, 1, first, left);
  run();
  ASSERT_EQ(got, first) << "and a message of rank 2 is still awaited";

  std::vector<std::byte> begun = pattern(1UL << 20, 2);
  std::vector<std::byte> other = pattern(begun.size(), 3);
  got.assign(begun.size(), {});
  post(0, Direction::send, 1, begun, left);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(moves(1, Direction::receive, any, got));  // one call in 64 does not look
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1000, begun.begin())) << "it has begun";
  post(2, Direction::send, 1, other, left);
  post(1, Direction::receive, any, got, left);
  run();
  EXPECT_EQ(got, begun);
  post(1, Direction::receive, any, got, left);
  run();
  EXPECT_EQ(got, other);
  EXPECT_EQ(left, 0U);
}

TEST_P(MessagesFromAnySource, KnowWhetherTheyWereAwaited) {
  std::vector<std::byte> got(8);
  EXPECT_FALSE(moves(1, Direction::receive, calls::Watchdog::anyone, got));
  const auto in_vain = end(1).vain_looks(message(calls::Watchdog::anyone, got));
  ASSERT_TRUE(in_vain);
  EXPECT_NE(in_vain->first, 0U);
  EXPECT_EQ(in_vain->last == 0, GetParam().share_processors);
}

INSTANTIATE_TEST_SUITE_P(Kinds, MessagesFromAnySource, ::testing::Values(tagged, tagged_sharing), name_of);

class MessagesOfSharedProcessors : public MessagesInStep {
 protected:
  struct Passed {
    std::uint64_t number = 0;  ///< what the rank has at the end
    int at_once = 0;           ///< receives that did not begin to wait
  };
  /// Rank 0 and rank 1 send each other a number in turn, `rounds` times.
  Passed pass_back_and_forth(int rank, int rounds) {
    Passed passed;
    std::vector<std::byte> data(sizeof(std::uint64_t));
    const auto move = [&](Direction direction, int peer) {
      WitnessWatchdog own;
      std::size_t left = 0;
      if (moves(rank, direction, peer, data)) {
        if (direction == Direction::receive) ++passed.at_once;
        return;
      }
      EXPECT_TRUE(end(rank).post(message(peer, data), direction, left, own));
      int idle = 0;
      while (left != 0) {
        EXPECT_TRUE(end(rank).progress(own));
        end(rank).rest(idle++);
      }
    };
    const int from = GetParam().tag == Message::untagged ? 1 - rank : calls::Watchdog::anyone;
    for (int round = 0; round < rounds; ++round) {
      if (rank == 1) move(Direction::receive, from);
      std::memcpy(&passed.number, data.data(), sizeof passed.number);
      ++passed.number;
      std::memcpy(data.data(), &passed.number, sizeof passed.number);
      move(Direction::send, 1 - rank);
      if (rank == 0) move(Direction::receive, from);
    }
    std::memcpy(&passed.number, data.data(), sizeof passed.number);
    return passed;
  }
};

/// Both on one processor, where nothing comes while the receiver only looks.
TEST_P(MessagesOfSharedProcessors, PassBackAndForthWithoutBeginningToWait) {
  constexpr int rounds = 300;  // on a busy machine each takes the others' turns
  Passed first;
  Passed second;
  const int processor = allowed_processors().front();
  const auto run_on_one = [&](int rank, Passed& passed) {
    bind_to_processor(0, processor);
    passed = pass_back_and_forth(rank, rounds);
  };
  std::thread threads[] = {std::thread([&] { run_on_one(0, first); }), std::thread([&] { run_on_one(1, second); })};
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(first.number, 2U * rounds);
  EXPECT_EQ(second.number, 2U * rounds);
  EXPECT_GT(first.at_once + second.at_once, rounds / 20) << "of " << 2 * rounds << "; without a yield none is";
}

TEST_P(MessagesOfSharedProcessors, AReceiverThatLooksInVainGivesUp) {
  std::vector<std::byte> got(8);
  EXPECT_FALSE(moves(1, Direction::receive, 0, got));
  EXPECT_FALSE(moves(1, Direction::receive, GetParam().tag == Message::untagged ? 2 : calls::Watchdog::anyone, got));
  exchange(0, pattern(8, 1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, MessagesOfSharedProcessors, ::testing::Values(untagged_sharing, tagged_sharing),
                         name_of);

}  // namespace
}  // namespace amldist::collective::messages_in_step_test
