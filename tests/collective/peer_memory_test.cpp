// Memory of another process, read in a single copy: who is believed, what cannot be read, and what is not used although
// it was read.
#include "collective/node/peer_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "collective/node/node_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"
#include "refusals.hpp"

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
class FetchTest : public testing::Test {
 protected:
  static constexpr std::size_t block = tuning::single_copy_from(tuning::SingleCopy::scatter, 2, false) / 2;

  FetchTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, tuning::node_slot)).value()),
        own_(memory_.data(), {0, 2, {0, 1}, "node7"}, tuning::node_slot, true),
        theirs_(memory_.data(), {1, 2, {0, 1}, "node7"}, tuning::node_slot, true),
        kernels_(InstructionSet::plain),
        peers_(2),
        node_(own_, kernels_, nullptr, &peers_) {
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
    const auto done = node_.scatter(nullptr, received_.data(), Blocks(block), 1, 1);
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
  EXPECT_EQ(scatter(8), "rank 1 (node7) gave a buffer to send of which " + std::to_string(block) +
                            " bytes are not its memory (Bad address)");
}

/// A rank that was stopped reads when it goes on. The root may have given up by then, and its memory be another's.
TEST_F(FetchTest, UsesNothingFromARankThatHasGivenUp) {
  theirs_.give_up();
  EXPECT_EQ(scatter(address_of(sent_.data())), "lost 1: it has given up the call");
}

}  // namespace
}  // namespace amldist::collective
