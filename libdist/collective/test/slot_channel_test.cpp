// How ranks that wait for long sleep and are woken; how far a sender may be ahead; where in a slot contributions lie.
#include "collective/node/channel/slot_channel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/memory/shared_futex.hpp"
#include "tests/collective/refusals.hpp"

namespace amldist::collective {
namespace {

TEST(SharedFutex, WhoSleepsIsWoken) {
  std::atomic<std::uint32_t> word = 7;
  std::atomic<bool> is_awake = false;
  std::thread sleeper([&] {
    while (word.load() == 7) sleep_while(word, 7, std::chrono::hours(1));
    is_awake = true;
  });
  while (wake_sleepers(word) == 0) std::this_thread::yield();
  word = 8;
  while (!is_awake) static_cast<void>(wake_sleepers(word));
  sleeper.join();
}

TEST(SharedFutex, WhoComesLateDoesNotSleep) {
  const std::atomic<std::uint32_t> word = 8;
  sleep_while(word, 7, std::chrono::hours(1));
  EXPECT_EQ(wake_sleepers(word), 0);
}

/// Two ranks on one processor.
class SlotChannelTest : public ::testing::Test {
 protected:
  static constexpr std::size_t slot = 4096;

  SlotChannelTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, slot)).value()),
        own_(memory_.data(), {0, 2, {0, 1}, {}}, slot, true),
        theirs_(memory_.data(), {1, 2, {0, 1}, {}}, slot, true) {
    own_.wait_under(watchdog_);
    theirs_.wait_under(watchdog_);
  }

  SharedMemory memory_;
  SlotChannel own_;
  SlotChannel theirs_;
  Patience watchdog_;
};

TEST_F(SlotChannelTest, ARankThatWaitsForLongSleepsUntilThePeerPublishes) {
  constexpr int rounds = 20;
  for (SlotChannel* const each : {&own_, &theirs_}) each->look_every(std::chrono::hours(1));
  std::thread waiter([&] {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(own_.begin());
      own_.publish();
      ASSERT_TRUE(own_.await(1));
    }
  });
  for (int round = 0; round < rounds; ++round) {
    ASSERT_TRUE(theirs_.begin());
    while (!theirs_.has_sleepers()) std::this_thread::yield();
    theirs_.publish();
    ASSERT_TRUE(theirs_.await(0));
  }
  waiter.join();
  EXPECT_FALSE(theirs_.has_sleepers());
  EXPECT_FALSE(own_.has_sleepers());
}

TEST_F(SlotChannelTest, ARankThatSendsShortDataIsAllLinesButTwoAheadOfItsReader) {
  constexpr std::uint64_t rounds = SlotChannel::lines_oversubscribed - 2;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ASSERT_TRUE(own_.begin_short());
    std::memcpy(own_.own_place(sizeof round), &round, sizeof round);
    own_.publish();
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ASSERT_TRUE(theirs_.begin_short());
    theirs_.publish();
    ASSERT_TRUE(theirs_.await_stream(0));
    std::uint64_t got = rounds;
    std::memcpy(&got, theirs_.place_of(0, sizeof got), sizeof got);
    EXPECT_EQ(got, round);
  }
}

/// In each round one rank sends data to the others: many rounds in a row or one, of one of these sizes. A tenth of the
/// turns are calls in which all wait for all. Two ranks trade their slots in half of the turns.
class Relay {
 public:
  static constexpr std::size_t rounds = 6000;

  Relay(bool oversubscribed, std::span<const std::size_t> sizes, std::uint32_t ranks = 3)
      : ranks_(ranks),
        memory_(SharedMemory::create(SlotChannel::memory_bytes(ranks, slot)).value()),
        oversubscribed_(oversubscribed) {
    std::mt19937 random(1);
    while (messages_.size() < rounds) {
      const std::size_t turn = random() % 2 == 0 ? 1 : random() % 400;
      const auto sender = static_cast<std::uint32_t>(random() % ranks);
      const bool trades = ranks == 2 && random() % 2 == 0;
      const Flow flow = random() % 10 == 0 ? Flow::both_ways : Flow::one_way;
      messages_.resize(messages_.size() + turn, {sender, sizes[random() % sizes.size()], flow, trades});
    }
  }

  /// Rounds in which a rank read something else than was sent.
  std::size_t wrong() {
    std::atomic<std::size_t> out = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) threads.emplace_back([&, rank] { out += wrong_on(rank); });
    for (std::thread& each : threads) each.join();
    return out;
  }

 private:
  using Flow = SlotChannel::Flow;
  static constexpr std::size_t slot = 128UL << 10;

  struct Message {
    std::uint32_t sender;
    std::size_t bytes;
    Flow flow;
    bool trades;
  };

  /// Waits until a rank has failed, which the others need not wait for.
  class UntilFailure final : public Refusals {
   public:
    explicit UntilFailure(const std::atomic<bool>& has_failed) : has_failed_(has_failed) {}
    [[nodiscard]] Result<void> keep_waiting(int /*rank*/) override {
      if (has_failed_) return Error{Errc::peer, "another rank has failed"};
      return {};
    }

   private:
    const std::atomic<bool>& has_failed_;
  };

  /// As the collectives do it.
  static Result<void> begin(SlotChannel& channel, std::size_t bytes, Flow flow) {
    channel.begin_call(0);
    if (flow == Flow::one_way) {
      if (bytes <= SlotChannel::short_data) return channel.begin_short();
      channel.use_slots(bytes, bytes, flow);
      return channel.begin();
    }
    if (!channel.try_begin()) {
      if (auto status = channel.begin(); !status) return status;
    }
    if (bytes > SlotChannel::short_data) channel.use_slots(bytes, bytes);
    return {};
  }

  std::size_t wrong_on(std::uint32_t rank) {
    const std::size_t out = wrong_before_failure(rank);
    if (out == rounds) has_failed_ = true;
    return out;
  }

  /// `rounds` if the rank failed.
  std::size_t wrong_before_failure(std::uint32_t rank) {
    UntilFailure watchdog(has_failed_);
    SlotChannel channel(memory_.data(), {rank, ranks_, {0, 1, 2}, {}}, slot, oversubscribed_);
    channel.wait_under(watchdog);
    std::size_t wrong = 0;
    std::vector<std::byte> wanted;
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto value = static_cast<int>(round % 251);
      const auto [sender, bytes, flow, trades] = messages_[round];
      channel.trade_slots(trades);
      if (!begin(channel, bytes, flow)) return rounds;
      if (sender == rank) std::memset(channel.own_place(bytes), value, bytes);
      channel.publish();
      if (sender == rank) continue;
      if (!channel.await_stream(sender)) return rounds;
      wanted.assign(bytes, static_cast<std::byte>(value));
      wrong += std::memcmp(wanted.data(), channel.place_of(sender, bytes), bytes) == 0 ? 0U : 1U;
    }
    return wrong;
  }

  std::uint32_t ranks_;
  SharedMemory memory_;
  bool oversubscribed_;
  std::vector<Message> messages_;
  std::atomic<bool> has_failed_ = false;
};

TEST(SlotChannelRelay, NoShortDataIsOverwrittenBeforeAllReadersHaveIt) {
  constexpr std::array sizes = {SlotChannel::short_data};
  EXPECT_EQ(Relay(false, sizes).wrong(), 0U);
  EXPECT_EQ(Relay(true, sizes).wrong(), 0U);
}

TEST(SlotChannelRelay, NoSlotIsOverwrittenBeforeAllReadersHaveItHoweverSlotsAreDivided) {
  constexpr std::array sizes = {SlotChannel::short_data, std::size_t{3000},  std::size_t{5000},
                                std::size_t{16384},      std::size_t{40000}, std::size_t{100000}};
  EXPECT_EQ(Relay(false, sizes).wrong(), 0U);
  EXPECT_EQ(Relay(true, sizes).wrong(), 0U);
  EXPECT_EQ(Relay(false, sizes, 2).wrong(), 0U);
}

/// Two ranks that share a processor: one sends through its slots without waiting for the other.
class SlotRunAheadTest : public ::testing::Test {
 protected:
  static constexpr std::size_t slot = 128UL << 10, bytes = 16UL << 10;
  static constexpr int positions = SlotChannel::slots * slot / bytes;

  SlotRunAheadTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, slot)).value()),
        sender_(memory_.data(), {0, 2, {0, 1}, {}}, slot, true),
        reader_(memory_.data(), {1, 2, {0, 1}, {}}, slot, true) {
    for (SlotChannel* const each : {&sender_, &reader_}) each->wait_under(watchdog_);
  }

  [[nodiscard]] static bool begin_one_way(SlotChannel& channel) {
    channel.begin_call(0);
    channel.use_slots(bytes, bytes, SlotChannel::Flow::one_way);
    return channel.begin().ok();
  }
  [[nodiscard]] static bool begin_both_ways(SlotChannel& channel) {
    channel.begin_call(0);
    return channel.try_begin();
  }

  void in_step(int rounds, bool (*begin)(SlotChannel&)) {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(begin(sender_) && begin(reader_));
      sender_.publish();
      reader_.publish();
      ASSERT_TRUE(sender_.await(1) && reader_.await(0));
    }
  }
  /// Rounds that the sender begins before it would have to wait.
  [[nodiscard]] int rounds_ahead() {
    int rounds = 0;
    while (rounds < 2 * positions && begin_one_way(sender_)) {
      sender_.publish();
      ++rounds;
    }
    return rounds;
  }

  SharedMemory memory_;
  SlotChannel sender_, reader_;
  Refusals watchdog_;
};

TEST_F(SlotRunAheadTest, TheSenderIsAsManyRoundsAheadAsThereArePositionsLessTwo) {
  in_step(positions, begin_one_way);
  EXPECT_EQ(rounds_ahead(), positions - 2);
}

TEST_F(SlotRunAheadTest, ItWaitsForRoundsInWhichSlotsWereDividedOtherwise) {
  in_step(positions, begin_one_way);
  in_step(1, begin_both_ways);
  EXPECT_EQ(rounds_ahead(), 2);
}

/// Slots in which short contributions take turns.
class SlotPositionTest : public ::testing::Test {
 protected:
  static constexpr std::size_t slot = 512UL << 10;

  SlotPositionTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(1, slot)).value()),
        channel_(memory_.data(), {0, 1, {0}, {}}, slot, false) {}

  /// Where the slot of each of the next rounds is used, for `bytes` of a call with `buffers` bytes.
  std::vector<std::byte*> places(std::size_t bytes, int rounds, std::size_t buffers = 0) {
    std::vector<std::byte*> out;
    channel_.use_slots(bytes, std::max(bytes, buffers));
    for (int round = 0; round < rounds; ++round) {
      EXPECT_TRUE(channel_.begin());
      channel_.publish();
      out.push_back(channel_.own_slot());
    }
    return out;
  }

  SharedMemory memory_;
  SlotChannel channel_;
};

TEST_F(SlotPositionTest, ShortContributionsComeBackToAPlaceAfterManyRoundsAndNeverOverlap) {
  for (const std::size_t bytes : {5000UL, 8192UL, 10000UL, 16384UL, 32768UL, 65536UL}) {
    auto used = places(bytes, 8);
    std::ranges::sort(used);
    EXPECT_TRUE(std::ranges::adjacent_find(used) == used.end()) << bytes;
    for (std::size_t i = 1; i < used.size(); ++i) EXPECT_GE(used[i] - used[i - 1], static_cast<std::ptrdiff_t>(bytes));
  }
}

TEST_F(SlotPositionTest, ContributionsThatNeedAllOfASlotBeginWhereItBegins) {
  static_cast<void>(places(8192, 7));
  for (const std::size_t bytes : {slot, slot / 2, slot / 4, 1UL}) {
    const auto used = places(bytes, 8, 4 * slot);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(used[i], used[i + 4]) << bytes;
      const std::byte* const first = *std::ranges::min_element(used);
      EXPECT_EQ(static_cast<std::size_t>(used[i] - first) % slot, 0U) << bytes;
    }
  }
}

/// After how many bytes of contributions the first place is used again.
std::size_t bytes_until_reuse(const std::vector<std::byte*>& places, std::size_t bytes) {
  const auto again = std::find(places.begin() + 1, places.end(), places.front());
  return static_cast<std::size_t>(again - places.begin()) * bytes;
}

TEST_F(SlotPositionTest, MemoryIsUsedAgainOnceItHasLeftTheCachesUnlessTheCallsOwnBuffersDriveItOut) {
  constexpr std::size_t bytes = 64UL << 10;
  EXPECT_EQ(bytes_until_reuse(places(bytes, 100, 2 * bytes), bytes), 4UL << 20);
  EXPECT_EQ(bytes_until_reuse(places(bytes, 100, 64 * bytes), bytes), 512UL << 10);
}

/// Both ranks begin and publish the rounds of a thread.
class TradedSlotsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t slot = 512UL << 10;
  using Places = std::array<std::vector<std::byte*>, 2>;  ///< where each rank writes in each round

  static Places places(bool trades, std::size_t bytes, int rounds, bool oversubscribed = false) {
    Refusals watchdog;
    const auto memory = SharedMemory::create(SlotChannel::memory_bytes(2, slot));
    SlotChannel ranks[] = {{memory->data(), {0, 2, {0, 1}, {}}, slot, oversubscribed},
                           {memory->data(), {1, 2, {0, 1}, {}}, slot, oversubscribed}};
    Places out;
    for (SlotChannel& each : ranks) {
      each.wait_under(watchdog);
      each.trade_slots(trades);
    }
    for (int round = 0; round < rounds; ++round) {
      for (SlotChannel& each : ranks) {
        each.begin_call(0);
        each.use_slots(bytes, bytes);
        EXPECT_TRUE(each.begin());
        each.publish();
        out[each.rank()].push_back(each.own_slot());
      }
      for (std::uint32_t r = 0; r < 2; ++r) EXPECT_EQ(ranks[1 - r].slot_of(r), out[r].back());
    }
    return out;
  }
};

TEST_F(TradedSlotsTest, ARankWritesWhereItHasRead) {
  for (const std::size_t bytes : {100UL, 16UL << 10, 64UL << 10, 100UL << 10, slot}) {
    const auto [first, second] = places(true, bytes, 100);
    const auto again = std::find_if(first.begin() + 1, first.end(),
                                    [&, other = second.front()](std::byte* each) { return each == other; });
    ASSERT_NE(again, first.end()) << bytes;
    const auto rounds = again - first.begin();
    EXPECT_EQ(std::count(first.begin(), again, first.front()), 1) << "its own place is used only after that";
    EXPECT_EQ(second[static_cast<std::size_t>(rounds)], first.front());
    EXPECT_LE(static_cast<std::size_t>(rounds) * bytes, SlotChannel::slots * std::max(bytes, 128UL << 10));
  }
}

TEST_F(TradedSlotsTest, RanksThatShareProcessorsDoNotTrade) {
  for (const auto& [trades, oversubscribed] : {std::pair(false, false), std::pair(true, true)}) {
    const auto [first, second] = places(trades, 16UL << 10, 300, oversubscribed);
    for (std::byte* const each : second) EXPECT_EQ(std::ranges::find(first, each), first.end());
  }
}

TEST(SlotRotation, IsDividedAmongManyRanks) {
  constexpr std::size_t slot = 512UL << 10;
  for (const auto& [ranks, whole] : std::vector<std::pair<std::uint32_t, std::size_t>>{
           {2, 4UL << 20}, {4, 2UL << 20}, {16, 512UL << 10}, {17, 256UL << 10}}) {
    const auto memory = SharedMemory::create(SlotChannel::memory_bytes(ranks, slot));
    ASSERT_TRUE(memory);
    SlotChannel channel(memory->data(), {0, ranks, std::vector<int>(ranks), {}}, slot, false);
    Patience watchdog;
    channel.wait_under(watchdog);
    constexpr std::size_t bytes = 64UL << 10;
    channel.use_slots(bytes, 2 * bytes);
    std::vector<std::byte*> places;
    for (std::uint32_t i = 0; i < 100; ++i) places.push_back(channel.slot_of(0, 0U - i));  // of round i
    EXPECT_EQ(bytes_until_reuse(places, bytes), whole) << ranks;
  }
}

TEST_F(SlotPositionTest, AllPositionsAreInTheSlotOfTheirRound) {
  const auto begins = places(slot, SlotChannel::slots, 4 * slot);
  const auto ordered = std::set(begins.begin(), begins.end());
  const std::ptrdiff_t distance = *std::next(ordered.begin()) - *ordered.begin();
  for (const std::size_t bytes : {5000UL, 20000UL, 65536UL}) {
    const auto used = places(bytes, 50 * SlotChannel::slots);
    for (std::size_t round = 0; round < used.size(); ++round) {
      const std::byte* const begin = begins[round % SlotChannel::slots];
      EXPECT_GE(used[round], begin) << bytes;
      EXPECT_LE(used[round] + bytes, begin + distance) << bytes;
    }
  }
}

}  // namespace
}  // namespace amldist::collective
