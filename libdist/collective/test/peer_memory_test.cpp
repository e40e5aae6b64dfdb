// Memory of another process, read in a single copy: who is believed, what cannot be read, and what is not used although
// it was read.
#include "collective/node/memory/peer_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "collective/node/node_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"
#include "tests/collective/refusals.hpp"

namespace amldist::collective {
namespace {

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

/// This process as if it were another: the kernel makes no difference.
PeerMemory own_memory() {
  PeerMemory memory(1);
  EXPECT_TRUE(memory.open(0, PeerMemory::Sample(42).address()));
  return memory;
}

TEST(PeerMemory, IsCopiedFromWhereItLies) {
  const PeerMemory memory = own_memory();
  const std::vector<int> there = {1, 2, 3, 4, 5};
  std::vector<int> here(there.size());
  EXPECT_TRUE(memory.read(0, here.data(), address_of(there.data()), there.size() * sizeof(int)));
  EXPECT_EQ(here, there);
  EXPECT_TRUE(memory.read(0, nullptr, 0, 0));
}

TEST(PeerMemory, IsThatOfTheProcessThatHasTheSample) {
  PeerMemory memory(1);
  const PeerMemory::Sample sample(42);
  const std::string address = sample.address();
  EXPECT_TRUE(memory.open(0, address));
  EXPECT_FALSE(memory.open(0, address + "1"));
  EXPECT_FALSE(memory.open(0, "1" + address.substr(address.find(':'))));
  for (const char* const text : {"", "1", "1:2", "1:2:3", "0:8:42", "1:2:3:4", "x:8:42", "-1:8:42", "1::42"})
    EXPECT_FALSE(memory.open(0, text)) << text;
}

TEST(PeerMemory, IsNotReadWhereThereIsNone) {
  const PeerMemory memory = own_memory();
  void* const nowhere = ::mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nowhere, MAP_FAILED);
  char here[8192];
  const auto read = memory.read(0, here, address_of(nowhere), sizeof here);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::invalid_argument);
  EXPECT_FALSE(memory.read(0, here, UINT64_MAX - 4096, sizeof here));
  EXPECT_EQ(::munmap(nowhere, 8192), 0);
}

TEST(PeerMemory, EndsWithItsProcess) {
  PeerMemory memory(1);
  const PeerMemory::Sample sample(42);  // the child has a copy at the same address
  int waits[2] = {};
  ASSERT_EQ(::pipe(waits), 0);
  const int child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(waits[1]);
    static_cast<void>(::read(waits[0], &byte, 1));
    ::_exit(0);
  }
  const std::string address = sample.address();
  EXPECT_TRUE(memory.open(0, std::to_string(child) + address.substr(address.find(':'))));
  ::close(waits[0]);
  ::close(waits[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  char here = 0;
  const auto read = memory.read(0, &here, address_of(&sample), 1);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::peer);
  EXPECT_EQ(read.error().message, "its process has ended");
}

/// Two ranks in one process, of which the test plays rank 1, the root of a scatter.
class FetchTest : public ::testing::Test {
 protected:
  static constexpr std::size_t block = tuning::single_copy_from(tuning::SingleCopy::scatter, 2) / 2;

  FetchTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, tuning::node_slot)).value()),
        own_(memory_.data(), {0, 2, {0, 1}, "node7"}, tuning::node_slot, true),
        theirs_(memory_.data(), {1, 2, {0, 1}, "node7"}, tuning::node_slot, true),
        kernels_(InstructionSet::plain),
        peers_(2),
        node_(own_, kernels_, nullptr, &peers_, NodeTuning{.fetches = true}) {
    const PeerMemory::Sample sample(7);
    EXPECT_TRUE(peers_.open(1, sample.address()));
    for (SlotChannel* const each : {&own_, &theirs_}) {
      each->begin_call(1);
      each->wait_under(watchdog_);
    }
  }

  /// What rank 0 gets from a root that shows this address.
  std::string scatter(std::uint64_t address) {
    const std::uint64_t shown[] = {2, address, 0};
    EXPECT_TRUE(theirs_.begin());
    std::memcpy(theirs_.own_line(), shown, sizeof shown);
    theirs_.publish();
    const auto done = node_.scatter(nullptr, received_.data(), calls::Blocks(block), 1, 1);
    return done ? "done" : done.error().message;
  }

  std::vector<std::byte> received_ = std::vector<std::byte>(block);
  std::vector<std::byte> sent_ = std::vector<std::byte>(2 * block, std::byte{9});
  SharedMemory memory_;
  SlotChannel own_;
  SlotChannel theirs_;
  Reductions kernels_;
  PeerMemory peers_;
  NodeCollectives node_;
  Refusals watchdog_;
};

TEST_F(FetchTest, TakesTheBlockFromTheRootsBuffer) {
  EXPECT_EQ(scatter(address_of(sent_.data())), "done");
  EXPECT_EQ(received_, std::vector<std::byte>(block, std::byte{9}));
}

TEST_F(FetchTest, NamesWhoseBufferIsNoMemory) {
  EXPECT_EQ(scatter(8), "rank 1 on node7 gave a buffer to send of which " + std::to_string(block) +
                            " bytes are not its memory, or the kernel shows them to no other process (Bad address): "
                            "for the latter set AMLDIST_SINGLE_COPY=off");
}

/// A rank that was stopped reads when it goes on. The root may have given up by then, and its memory be another's.
TEST_F(FetchTest, UsesNothingFromARankThatHasGivenUp) {
  theirs_.give_up();
  EXPECT_EQ(scatter(address_of(sent_.data())), "lost 1: it has given up the call");
}

constexpr std::size_t long_bytes = tuning::single_copy_from(tuning::SingleCopy::allreduce, 2);

/// A rank of a node of two that makes all-reduces in a thread of its own.
class ReducingRank {
 public:
  ReducingRank(const SharedMemory& memory, std::uint32_t rank, std::size_t bytes, bool oversubscribed,
               std::optional<NodeTuning> given = std::nullopt)
      : channel_(memory.data(), {rank, 2, {0, 1}, "node7"}, tuning::node_slot, oversubscribed),
        kernels_(),
        peers_(2),
        node_(channel_, kernels_, nullptr, &peers_, given),
        data_(bytes / sizeof(std::int32_t)),
        own_(static_cast<std::int32_t>(rank)) {
    EXPECT_TRUE(peers_.open(1 - rank, sample_.address()));
    channel_.wait_under(watchdog_);
  }

  void reduce(std::size_t calls) {
    for (std::size_t call = 0; call < calls; ++call) {
      const std::uint32_t before = channel_.rounds();
      channel_.begin_call(1);
      const std::size_t stride = std::max<std::size_t>(1, data_.size() / most_checked);
      for (std::size_t i = 0; i < data_.size(); i += stride)
        data_[i] = static_cast<std::int32_t>(i + call) * (own_ + 1);
      auto* const data = reinterpret_cast<std::byte*>(data_.data());
      EXPECT_TRUE(node_.allreduce({data, data, data_.size(), calls::DataType::int32, calls::ReduceOp::sum}));
      rounds_.push_back(channel_.rounds() - before);
      for (std::size_t i = 0; i < data_.size(); i += stride)
        wrong_ += data_[i] != static_cast<std::int32_t>(i + call) * 3;
    }
  }
  void reduce(std::size_t calls, std::size_t bytes) {
    data_.assign(bytes / sizeof(std::int32_t), 0);
    reduce(calls);
  }
  [[nodiscard]] std::size_t wrong() const { return wrong_; }
  [[nodiscard]] const std::vector<std::uint32_t>& rounds() const { return rounds_; }

 private:
  static constexpr std::size_t most_checked = 10000;  ///< elements of a call; the others stay 0

  SlotChannel channel_;
  Reductions kernels_;
  PeerMemory peers_;
  PeerMemory::Sample sample_{7};
  Patience watchdog_;
  NodeCollectives node_;
  std::vector<std::int32_t> data_;
  std::int32_t own_;
  std::size_t wrong_ = 0;              ///< elements
  std::vector<std::uint32_t> rounds_;  ///< of each call
};

/// What two ranks needed for each of so many calls, and that their results were right.
std::vector<std::uint32_t> rounds_of(std::size_t calls, std::size_t bytes, bool oversubscribed,
                                     std::optional<NodeTuning> given = std::nullopt) {
  const auto memory = SharedMemory::create(SlotChannel::memory_bytes(2, tuning::node_slot));
  if (!memory) ADD_FAILURE() << memory.error().message;
  ReducingRank first(*memory, 0, bytes, oversubscribed, given);
  ReducingRank second(*memory, 1, bytes, oversubscribed, given);
  std::thread other([&] { second.reduce(calls); });
  first.reduce(calls);
  other.join();
  EXPECT_EQ(first.rounds(), second.rounds());
  EXPECT_EQ(first.wrong() + second.wrong(), 0U);
  return first.rounds();
}

/// At first the kernel still has to find the memory. Virtual machines move their processors: what was fastest at the
/// start may not be later.
TEST(LongCalls, TryBothWaysAfterAFewCallsAndAgainLater) {
  constexpr std::size_t every = tuning::single_copy_trial_every;
  constexpr std::size_t tried = tuning::single_copy_tried;
  constexpr std::size_t untried = tuning::single_copy_untried;
  const auto all = rounds_of(untried + every + tried + 2, long_bytes, true);
  for (std::size_t call = 1; call < untried; ++call) EXPECT_EQ(all[call], all[0]) << call;
  const std::vector<std::uint32_t> rounds(all.begin() + untried, all.end());
  ASSERT_NE(rounds[0], rounds[1]) << "staged and fetched";
  EXPECT_EQ(rounds[0], all[0] + 1) << "staged, after a barrier";
  for (std::size_t call = 2; call < tried; ++call) EXPECT_EQ(rounds[call], rounds[call % 2]) << call;
  const std::uint32_t settled = rounds[tried + 1];
  EXPECT_GT(rounds[tried], settled) << "it decides";
  EXPECT_TRUE(settled + 1 == rounds[0] || settled + 1 == rounds[1]) << "one of them without the barrier";
  for (std::size_t call = tried + 1; call < every; ++call) EXPECT_EQ(rounds[call], settled) << call;
  for (std::size_t call = every; call < every + tried; ++call) EXPECT_EQ(rounds[call], rounds[call - every]) << call;
  EXPECT_GT(rounds[every + tried], rounds[every + tried + 1]) << "and decides again";
}

/// If each length waited for calls of its own, a program with few long calls would never learn the fastest way.
TEST(LongCalls, OfAnotherLengthAreTriedAtOnce) {
  constexpr std::size_t longer = 4 * long_bytes;
  constexpr std::size_t first_calls = tuning::single_copy_untried;
  static_assert(tuning::single_copy_class(longer) != tuning::single_copy_class(long_bytes));
  const auto memory = SharedMemory::create(SlotChannel::memory_bytes(2, tuning::node_slot));
  ASSERT_TRUE(memory) << memory.error().message;
  ReducingRank first(*memory, 0, long_bytes, true);
  ReducingRank second(*memory, 1, long_bytes, true);
  const auto run = [](ReducingRank& rank) {
    rank.reduce(first_calls);
    rank.reduce(2, longer);
  };
  std::thread other([&] { run(second); });
  run(first);
  other.join();
  EXPECT_EQ(first.wrong() + second.wrong(), 0U);
  EXPECT_NE(first.rounds()[first_calls], first.rounds()[first_calls + 1]) << "staged and fetched";
}

TEST(WayOfStaging, IsTriedByTheFirstOfSoManyCalls) {
  constexpr std::size_t every = tuning::staging_trial_every;
  const auto rounds = rounds_of(every + 2, tuning::staging_trial_from, false);
  for (std::size_t call = 2; call < every; ++call) ASSERT_EQ(rounds[call], rounds[1]) << call;
  EXPECT_GT(rounds[0], rounds[1]) << "the first tries";
  EXPECT_GT(rounds[every], rounds[every + 1]) << "and so does this one";
}

/// Three ways fold everything, and three slices of it; one of each trades the slots. Each attempt follows a barrier,
/// and in one more round the ranks tell each other what they have measured.
TEST(WayOfStaging, IsOneOfSixForTwoRanksEachOfWhichIsTriedSevenTimes) {
  const auto rounds_of_call = [](bool slices) {
    const NodeTuning given = {.slices = slices, .trades = false, .for_others = Store::whole_lines};
    return rounds_of(2, tuning::staging_trial_bytes, false, given)[1];
  };
  const auto tried = rounds_of(2, tuning::staging_trial_bytes, false);
  EXPECT_EQ(tried[0] - tried[1], 7 * 3 * (rounds_of_call(false) + 1 + rounds_of_call(true) + 1) + 1);
}

TEST(WayOfStaging, IsNotTriedForShortCallsNorByRanksThatShareProcessors) {
  const auto are_equal = [](const std::vector<std::uint32_t>& rounds) {
    return std::ranges::all_of(rounds, [&](std::uint32_t each) { return each == rounds.front(); });
  };
  EXPECT_TRUE(are_equal(rounds_of(3, tuning::staging_trial_from - sizeof(std::int32_t), false)));
  EXPECT_TRUE(are_equal(rounds_of(3, tuning::staging_trial_from, true)));
}

TEST(WayOfStaging, NoneChangesAResult) {
  for (const bool slices : {false, true}) {
    for (const Store store : {Store::whole_lines, Store::streaming, Store::cached}) {
      for (const std::size_t bytes : {std::size_t{4}, 16 * tuning::kib, 100 * tuning::kib + 12, 3 * tuning::mib + 4}) {
        for (const bool trades : {false, true}) {
          const NodeTuning tuning = {.slices = slices, .trades = trades, .for_others = store};
          static_cast<void>(rounds_of(20, bytes, false, tuning));
        }
      }
    }
  }
}

}  // namespace
}  // namespace amldist::collective
