// The blocks that two ranks of a node write to in turn. Both owners are in one process.
#include "collective/node/channel/message_blocks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <thread>

#include "base/time/clock.hpp"
#include "ends_in_one_process.hpp"

namespace amldist::collective::message_blocks_test {
namespace {

constexpr std::size_t whole = MessageBlocks::block;

constexpr bool each_can_go_on(std::size_t count) {
  const std::size_t most = MessageBlocks::most_held(count);
  return most - 1 >= 2 && count - most >= 2 && most >= count / 2;
}
static_assert(each_can_go_on(MessageBlocks::count_of(2)) && each_can_go_on(MessageBlocks::count_of(9)) &&
              each_can_go_on(MessageBlocks::count_of(17)));

/// With as many blocks as the parameter says.
class MessageBlocksTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  struct Part {
    std::uint64_t place;
    std::vector<std::byte> data;
    [[nodiscard]] std::uint64_t block() const { return place / whole; }
  };
  struct Rank {
    BlockOwner blocks;
    std::deque<Part> written;       ///< and not read by the other rank
    std::set<std::uint64_t> reads;  ///< the blocks that it was the last to read
    unsigned count = 0;             ///< parts that it has written
  };

  MessageBlocksTest() : memory_(make_memory(sizeof(MessageBlocks) + GetParam() * whole)) {
    for (const bool first : {true, false}) ranks_.push_back({BlockOwner(shared(), GetParam(), first), {}, {}});
  }
  [[nodiscard]] MessageBlocks& shared() { return *reinterpret_cast<MessageBlocks*>(memory_.data()); }
  [[nodiscard]] Rank& rank(std::size_t which) { return ranks_[which]; }
  [[nodiscard]] bool write(std::size_t by, std::size_t bytes = whole) {
    Rank& writer = rank(by);
    const auto fits = writer.blocks.fits(bytes);
    EXPECT_TRUE(fits);
    if (!fits.value_or(false)) return false;
    Part part = {0, pattern(bytes, writer.count++)};
    part.place = writer.blocks.write(part.data, writer.count % 5 == 0 ? MessageWay::streamed : MessageWay::copied);
    EXPECT_LE(part.place % whole + bytes, whole) << "a part is in one block";
    writer.written.push_back(std::move(part));
    return true;
  }
  void read_next(std::size_t by) {
    std::deque<Part>& written = rank(1 - by).written;
    const Part part = std::move(written.front());
    written.pop_front();
    std::vector<std::byte> got(part.data.size());
    ASSERT_TRUE(rank(by).blocks.read(part.place, got));
    EXPECT_EQ(got, part.data);
    rank(by).reads.insert(part.block());
    rank(1 - by).reads.erase(part.block());
  }

 private:
  SharedMemory memory_;
  std::vector<Rank> ranks_;
};

/// That is what the blocks are for.
TEST_P(MessageBlocksTest, RanksThatTakeTurnsWriteToWhatTheyHaveRead) {
  for (unsigned turn = 0; turn < 1000; ++turn) {
    const std::size_t writer = turn % 2;
    ASSERT_TRUE(write(writer));
    if (turn > 3 * GetParam()) {
      EXPECT_TRUE(rank(writer).reads.contains(rank(writer).written.front().block())) << turn;
    }
    read_next(1 - writer);
  }
}

TEST_P(MessageBlocksTest, OneRankWritesForEver) {
  for (unsigned i = 0; i < 1000; ++i) {
    ASSERT_TRUE(write(0)) << i;
    read_next(1);
  }
}

TEST_P(MessageBlocksTest, AWriterFindsRoomAgainWhenTheOtherHasReadAll) {
  for (const std::size_t writer : {0U, 1U, 1U, 0U, 0U, 0U, 1U}) {
    std::size_t written = 0;
    while (write(writer)) ++written;
    EXPECT_GE(written, 1U);
    EXPECT_LT(written, GetParam());
    EXPECT_FALSE(write(writer)) << "nobody reads";
    while (!rank(writer).written.empty()) read_next(1 - writer);
    EXPECT_TRUE(write(writer));
    read_next(1 - writer);
  }
}

/// As where both ranks send and only one receives meanwhile.
TEST_P(MessageBlocksTest, WhatNobodyReadsDoesNotStopTheOtherDirection) {
  for (const std::size_t stuck : {0U, 1U}) {
    for (unsigned i = 0; i < 500; ++i) {
      while (write(stuck)) continue;
      ASSERT_TRUE(write(1 - stuck)) << i;
      read_next(stuck);
    }
    while (!rank(stuck).written.empty()) read_next(1 - stuck);
  }
}

TEST_P(MessageBlocksTest, PartsOfAnyLengthArriveWhoeverWritesAndReadsWhen) {
  std::mt19937 random(45);
  std::size_t moved = 0;
  for (unsigned i = 0; i < 4000; ++i) {
    const std::size_t by = random() % 2;
    const bool writes = random() % 2 == 0;
    for (auto many = random() % 12; many > 0; --many) {
      if (writes && write(by, 1 + random() % whole)) ++moved;
      if (!writes && !rank(1 - by).written.empty()) read_next(by);
    }
  }
  EXPECT_GT(moved, 2000U);
}

TEST_P(MessageBlocksTest, SmallPartsShareABlock) {
  for (unsigned i = 0; i < 8; ++i) {
    ASSERT_TRUE(write(0, whole / 8));
    EXPECT_EQ(rank(0).written.back().place, rank(0).written.front().place + i * whole / 8);
  }
}

TEST_P(MessageBlocksTest, WhatFitsAsAWholeDoesNotStopHalfway) {
  std::mt19937 random(46);
  int fitted = 0;
  for (unsigned i = 0; i < 500; ++i) {
    const std::size_t message = random() % (GetParam() * whole);
    const auto fits = rank(0).blocks.fits_whole(message);
    ASSERT_TRUE(fits);
    if (*fits) {
      ++fitted;
      for (std::size_t left = message; left != 0;) {
        const std::size_t part = std::min(left, whole / 2);
        ASSERT_TRUE(write(0, part));
        left -= part;
      }
    }
    while (!rank(0).written.empty()) read_next(1);
    if (random() % 3 == 0 && write(1)) read_next(0);
  }
  EXPECT_GT(fitted, 50);
}

/// Each rank in a thread: what one knows of the other is late. Then one of them goes on alone.
TEST_P(MessageBlocksTest, RanksThatRunAtTheSameTimeGoOnForEver) {
  constexpr std::uint64_t both_ways = 3000;
  constexpr std::uint64_t alone = 1000;
  std::array<std::array<std::atomic<std::uint64_t>, 8>, 2> places = {};  // of a part, by its number: plus one
  std::array<std::atomic<std::uint64_t>, 2> read = {};
  const auto run = [&](std::size_t own, std::uint64_t writes, std::uint64_t reads) {
    std::vector<std::byte> data(whole / 2);
    std::vector<std::byte> got(data.size());
    std::uint64_t written = 0;
    std::uint64_t taken = 0;
    for (auto end = Clock::now() + std::chrono::seconds(30); written < writes || taken < reads;) {
      ASSERT_LT(Clock::now(), end) << written << ' ' << taken;
      if (written < writes && written - read[1 - own] < 8 && rank(own).blocks.fits(data.size()).value_or(false)) {
        std::memcpy(data.data(), &written, sizeof written);
        places[own][written % 8] = rank(own).blocks.write(data, MessageWay::copied) + 1;
        ++written;
      }
      if (taken == reads) continue;
      const std::uint64_t place = places[1 - own][taken % 8].exchange(0);
      if (place == 0) continue;
      ASSERT_TRUE(rank(own).blocks.read(place - 1, got));
      std::uint64_t number = 0;
      std::memcpy(&number, got.data(), sizeof number);
      ASSERT_EQ(number, taken);
      read[own] = ++taken;
    }
  };
  std::thread other(run, 1, both_ways, both_ways + alone);
  run(0, both_ways + alone, both_ways);
  other.join();
}

TEST_P(MessageBlocksTest, APlaceWhereNoPartCanBeIsRefused) {
  ASSERT_TRUE(write(0));
  const std::uint64_t place = rank(0).written.front().place;
  std::vector<std::byte> part(100);
  EXPECT_FALSE(rank(1).blocks.read(GetParam() * whole, part)) << "behind the last block";
  EXPECT_FALSE(rank(1).blocks.read(~std::uint64_t{0}, part));
  EXPECT_FALSE(rank(1).blocks.read(place + whole - 99, part)) << "across the block's end";
  EXPECT_FALSE(rank(0).blocks.read(place, part)) << "its own block";
  EXPECT_TRUE(rank(1).blocks.read(place + whole - 100, part));
}

/// What no correct rank gives back.
struct Returned {
  std::uint64_t count;
  std::uint8_t block;
};

TEST_P(MessageBlocksTest, BlocksThatCannotHaveBeenGivenBackAreRefused) {
  const auto own = static_cast<std::uint8_t>(GetParam() / 2 - 1);  // the last of those that it writes
  const auto beyond = static_cast<std::uint8_t>(GetParam());
  for (const Returned wrong :
       {Returned{1, own}, Returned{1, beyond}, Returned{GetParam() + 1, beyond}, Returned{~std::uint64_t{0}, beyond}}) {
    BlockOwner first(shared(), GetParam(), true);
    const std::vector<std::byte> part(whole);
    MessageBlocks::Told& by_second = shared().told[1];
    by_second.blocks[0] = wrong.block;
    by_second.given_back = wrong.count;
    std::optional<bool> fits = true;
    while (fits.value_or(false)) {
      fits = first.fits(whole);
      if (fits.value_or(false)) first.write(part, MessageWay::copied);
    }
    EXPECT_FALSE(fits) << wrong.count << ' ' << int{wrong.block};
    by_second.given_back = 0;
  }
}

TEST_P(MessageBlocksTest, MoreKeptBlocksThanWereWrittenAreRefused) {
  bool is_read = true;
  for (unsigned i = 0; i < 100 && is_read; ++i) {
    shared().told[1].kept = 1000;
    while (write(0)) continue;
    for (std::size_t each = 0; each < GetParam() && is_read && write(1); ++each) {
      std::vector<std::byte> got(whole);
      is_read = rank(0).blocks.read(rank(1).written.front().place, got);
      rank(1).written.pop_front();
    }
  }
  EXPECT_FALSE(is_read);
}

std::string name_of(const ::testing::TestParamInfo<std::size_t>& info) { return "Of" + std::to_string(info.param); }
INSTANTIATE_TEST_SUITE_P(Blocks, MessageBlocksTest,
                         ::testing::Values(MessageBlocks::count_of(2), MessageBlocks::count_of(9),
                                           MessageBlocks::count_of(17)),
                         name_of);

}  // namespace
}  // namespace amldist::collective::message_blocks_test
