// Memory that another process offers: what is mapped, and which offsets are followed. Both ranks are in one process, so
// that a test decides what the other one writes.
#include "collective/node/memory/shared_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "base/memory/memory_map.hpp"
#include "collective/node/node_collectives.hpp"
#include "collective/tuning/algorithm_choice.hpp"
#include "tests/collective/refusals.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t page = 4096;

std::string address_of(const FileDescriptor& file) {
  struct stat status = {};
  EXPECT_EQ(::fstat(file.get(), &status), 0);
  return std::to_string(::getpid()) + ":" + std::to_string(file.get()) + ":" + std::to_string(status.st_ino);
}

FileDescriptor file_in_memory(int seals) {
  FileDescriptor file(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), page), 0);
  EXPECT_TRUE(seals == 0 || ::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

std::string refusal_of(const std::string& address) {
  const auto opened = SharedMemory::open(address, page);
  return opened ? "mapped" : opened.error().message;
}

TEST(SharedMemory, IsTheSameInEveryProcessThatOpensIt) {
  const auto made = SharedMemory::create(page);
  ASSERT_TRUE(made);
  const auto opened = SharedMemory::open(made->address(), page);
  ASSERT_TRUE(opened) << opened.error().message;
  made->data()[7] = std::byte{42};
  EXPECT_EQ(opened->data()[7], std::byte{42});
}

TEST(SharedMemory, CannotChangeItsSize) {
  const auto made = SharedMemory::create(page);
  ASSERT_TRUE(made);
  EXPECT_NE(::ftruncate(made->file().get(), 0), 0);
  EXPECT_NE(::ftruncate(made->file().get(), 2 * page), 0);
  EXPECT_NE(::fcntl(made->file().get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemory, IsMappedOnlyWhereItsSizeIsSealed) {
  const FileDescriptor open_to_all = file_in_memory(0);
  EXPECT_NE(refusal_of(address_of(open_to_all)).find("not a memfd of sealed size"), std::string::npos);
  const FileDescriptor can_shrink = file_in_memory(F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(refusal_of(address_of(can_shrink)).find("not a memfd of sealed size"), std::string::npos);
  const FileDescriptor other_seals = file_in_memory(F_SEAL_GROW | F_SEAL_SHRINK);
  EXPECT_NE(refusal_of(address_of(other_seals)).find("not a memfd of sealed size"), std::string::npos);
  const FileDescriptor sealed = file_in_memory(F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  EXPECT_EQ(refusal_of(address_of(sealed)), "mapped");
}

TEST(SharedMemory, IsNoOtherFile) {
  std::string name = ::testing::TempDir() + "amldist_XXXXXX";
  const FileDescriptor file(::mkstemp(name.data()));
  ASSERT_TRUE(file);
  EXPECT_EQ(::unlink(name.c_str()), 0);
  ASSERT_EQ(::ftruncate(file.get(), page), 0);
  EXPECT_NE(refusal_of(address_of(file)).find("not a memfd of sealed size"), std::string::npos);
  int pipe[2] = {};
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const FileDescriptor reading(pipe[0]);
  const FileDescriptor writing(pipe[1]);
  EXPECT_NE(refusal_of(address_of(reading)).find("not a file in memory"), std::string::npos);
}

TEST(SharedMemory, IsThatOfTheAddressAndOfItsSize) {
  const FileDescriptor sealed = file_in_memory(F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  EXPECT_NE(refusal_of(address_of(sealed) + "1").find("another PID namespace"), std::string::npos);
  const auto larger = SharedMemory::open(address_of(sealed), 2 * page);
  ASSERT_FALSE(larger);
  EXPECT_NE(larger.error().message.find("its size differs"), std::string::npos);
}

TEST(SharedMemory, HasAnAddressOfThreeNumbers) {
  for (const char* const address : {"", "/etc/passwd", "/proc/self/fd/0", "1", "1:2", "1:2:x", "1:2:3:4", "-1:2:3",
                                    "self:0:1", "1/../2:0:1", "99999999999999999999:0:1"}) {
    EXPECT_NE(refusal_of(address).find("is not the address of shared memory"), std::string::npos) << address;
  }
}

/// Two arenas that have each other mapped.
class ArenasTest : public ::testing::Test {
 protected:
  ArenasTest() : first_(Arenas::create(0, 2).value()), second_(Arenas::create(1, 2).value()) {
    EXPECT_TRUE(first_.open(1, second_.address()));
    EXPECT_TRUE(second_.open(0, first_.address()));
  }
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const {
    return first_.offset_of(data, bytes, Arenas::Access::written);
  }
  Arenas first_;
  Arenas second_;
};

TEST_F(ArenasTest, FollowNoRangeThatLeavesAnArena) {
  const std::size_t size = Arenas::reserved_bytes(2);
  EXPECT_NE(first_.at(1, 0, size), nullptr);
  EXPECT_NE(first_.at(1, size - 8, 8), nullptr);
  EXPECT_EQ(first_.at(1, size - 8, 9), nullptr);
  EXPECT_EQ(first_.at(1, size + 1, 0), nullptr);
  EXPECT_EQ(first_.at(1, UINT64_MAX, 8), nullptr);
  EXPECT_EQ(first_.at(1, UINT64_MAX - 7, 16), nullptr);
  EXPECT_EQ(first_.at(1, 8, SIZE_MAX), nullptr);
}

/// Whole pages of the program's own.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : data_(std::aligned_alloc(page, bytes)), bytes_(bytes) {}
  ~Pages() { std::free(data_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
  std::size_t bytes_;
};

TEST_F(ArenasTest, ShowRegisteredMemoryToTheOtherRanks) {
  const Pages memory(4 * page);
  std::ranges::fill(memory.bytes(), std::byte{1});
  ASSERT_TRUE(first_.register_memory(memory.data(), 4 * page));
  const auto offset = offset_of(memory.data(), 4 * page);
  ASSERT_TRUE(offset);
  std::byte* const theirs = second_.at(0, *offset, 4 * page);
  EXPECT_EQ(theirs[4 * page - 1], std::byte{1});
  memory.bytes()[page] = std::byte{2};
  EXPECT_EQ(theirs[page], std::byte{2});
  theirs[2 * page] = std::byte{3};
  EXPECT_EQ(memory.bytes()[2 * page], std::byte{3});
  EXPECT_EQ(offset_of(&memory.bytes()[100], 8), *offset + 100);
  EXPECT_FALSE(offset_of(&memory.bytes()[100], 4 * page));
  EXPECT_FALSE(offset_of(memory.data(), 4 * page + 1));
  EXPECT_TRUE(first_.deregister_memory(memory.data()));
}

TEST_F(ArenasTest, KeepNothingOfDeregisteredMemory) {
  const Pages memory(4 * page);
  std::ranges::fill(memory.bytes(), std::byte{1});
  ASSERT_TRUE(first_.register_memory(memory.data(), 4 * page));
  std::byte* const theirs = second_.at(0, *offset_of(memory.data(), 8), 4 * page);
  ASSERT_TRUE(first_.deregister_memory(memory.data()));
  EXPECT_FALSE(offset_of(memory.data(), 8));
  EXPECT_EQ(memory.bytes()[3 * page], std::byte{1});
  EXPECT_EQ(theirs[0], std::byte{0});  // and can be allocated again
  theirs[0] = std::byte{9};
  EXPECT_EQ(memory.bytes()[0], std::byte{1});
}

TEST_F(ArenasTest, LeaveRegisteredMemoryToTheProgram) {
  const Pages memory(2 * page);
  {
    Arenas alone = Arenas::create(0, 1).value();
    ASSERT_TRUE(alone.register_memory(memory.data(), 2 * page));
    std::ranges::fill(memory.bytes(), std::byte{4});
  }
  EXPECT_EQ(memory.bytes()[2 * page - 1], std::byte{4});
  const auto maps = own_memory_map().value();
  EXPECT_TRUE(check_private_memory(maps, reinterpret_cast<std::uintptr_t>(memory.data()), 2 * page));
}

/// A large all-reduce on buffers of arenas, whose other rank offers a buffer elsewhere.
class HostileOfferTest : public ArenasTest {
 protected:
  static constexpr std::size_t count = tuning::one_round_below / sizeof(float) * 4;
  static constexpr std::size_t slot = tuning::node_slot;

  struct Offer {
    std::uint64_t mode;
    std::uint64_t send;
    std::uint64_t recv;
  };

  HostileOfferTest()
      : memory_(SharedMemory::create(SlotChannel::memory_bytes(2, slot)).value()),
        own_(memory_.data(), {0, 2, {0, 1}, {}}, slot, true),
        theirs_(memory_.data(), {1, 2, {0, 1}, {}}, slot, true),
        kernels_(InstructionSet::plain),
        node_(own_, kernels_, &first_, nullptr),
        data_(first_.allocate(count * sizeof(float)).value()) {}

  std::string outcome(const Offer& offer) {
    for (SlotChannel* const each : {&own_, &theirs_}) {
      each->begin_call(1);
      each->wait_under(watchdog_);
    }
    EXPECT_TRUE(theirs_.begin());
    std::memcpy(theirs_.own_line(), &offer, sizeof offer);
    theirs_.publish();
    auto* const buffer = static_cast<std::byte*>(data_);
    const auto done =
        node_.allreduce({buffer, buffer, count, calls::DataType::float32, calls::ReduceOp::sum, 2, nullptr});
    return done ? "done" : done.error().message;
  }

  SharedMemory memory_;
  SlotChannel own_;
  SlotChannel theirs_;
  Reductions kernels_;
  NodeCollectives node_;
  Refusals watchdog_;
  void* data_;
};

TEST_F(HostileOfferTest, BehindTheEndIsNotRead) {
  EXPECT_EQ(outcome({1, Arenas::reserved_bytes(2) - 8, 0}), "lost 1: what it wrote to shared memory is damaged");
}

TEST_F(HostileOfferTest, BehindTheEndIsNotWritten) {
  EXPECT_EQ(outcome({1, 0, UINT64_MAX - 4096}), "lost 1: what it wrote to shared memory is damaged");
}

}  // namespace
}  // namespace amldist::collective
