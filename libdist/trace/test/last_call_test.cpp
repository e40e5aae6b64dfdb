// What is taken from a user's file: a few words of our own, or nothing.
#include "trace/diagnosis/last_call.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <random>

#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/flight_recorder.hpp"
#include "trace/record/record_format.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::ScratchFolder;

/// A recorder of rank 2 of step 42.0 under a folder of this user's.
class LastCall : public ::testing::Test {
 protected:
  LastCall() {
    EXPECT_EQ(::mkdir((root_ / "42.0").c_str(), 0700), 0);
    auto recorder = FlightRecorder::create(root_ / "42.0", {"42.0", 2, 4, 0, "node1"}, 16);
    EXPECT_TRUE(recorder);
    static_cast<void>(recorder->add_communicator(1, 2, 4));
    recorder->complete(recorder->begin(call(1)));
    recorder_ = std::move(*recorder);
  }
  static RecordedCall call(std::uint64_t sequence) {
    return {calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0, sequence, 4 << 20, -1};
  }
  std::optional<std::string> read(std::string_view step = "42.0", std::uint32_t rank = 2, int uid_offset = 0,
                                  std::string_view source = {}) {
    const std::array<std::string, 2> roots = {"/nonexistent", root_.path()};
    return last_call_of(recordings_of(roots, ::geteuid() + static_cast<unsigned>(uid_offset), step, rank, source));
  }

  ScratchFolder root_;
  FlightRecorder recorder_;
};

TEST_F(LastCall, IsTheOneThatDidNotEnd) {
  EXPECT_EQ(read(), "after allreduce #1 (1048576 float32, 4 MiB)");
  static_cast<void>(recorder_.begin(call(2)));
  EXPECT_EQ(read(), "in allreduce #2 (1048576 float32, 4 MiB)");
}

TEST_F(LastCall, IsTheNewestOfAllLibrariesThatRecord) {
  auto of_mpi = FlightRecorder::create(root_ / "42.0", {"42.0", 2, 4, 0, "node1", "mpi"}, 16);
  ASSERT_TRUE(of_mpi);
  EXPECT_EQ(read(), "after allreduce #1 (1048576 float32, 4 MiB)") << "MPI has made none yet";
  EXPECT_EQ(read("42.0", 2, 0, "mpi"), "before its first call");
  static_cast<void>(of_mpi->add_communicator(1, 2, 4));
  of_mpi->enqueue({calls::Operation::broadcast, calls::DataType::float32, calls::ReduceOp::sum, 0, 1, 4, 0});
  of_mpi->begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, 0, 2, 0});
  EXPECT_EQ(read(), "in barrier #2") << "and not in the one that it has only posted";
  EXPECT_EQ(read("42.0", 2, 0, "mpi"), "in barrier #2");
  EXPECT_EQ(read("42.0", 2, 0, "nccl"), std::nullopt);
}

TEST_F(LastCall, IsTheOneThatFailed) {
  recorder_.fail(recorder_.begin(call(2)), -7);
  EXPECT_EQ(read(), "in allreduce #2 (1048576 float32, 4 MiB)") << "a deadline may have been anybody's fault";
}

TEST_F(LastCall, WasBrokenByAnotherWhereThatOneDied) {
  recorder_.fail(recorder_.begin(call(2)), status_number(Errc::peer));
  EXPECT_EQ(read(), "in allreduce #2 (1048576 float32, 4 MiB) broken by another rank");
  EXPECT_TRUE(is_broken_by_another(*read()));
  EXPECT_FALSE(is_broken_by_another("in allreduce #2 (1048576 float32, 4 MiB)"));
}

/// Python calls MPI_Finalize also where an exception ends it.
TEST_F(LastCall, IsTheOneThatMpiFailedBeforeFinalize) {
  auto of_mpi = FlightRecorder::create(root_ / "42.0", {"42.0", 3, 4, 1, "node1", "mpi"}, 16);
  ASSERT_TRUE(of_mpi);
  static_cast<void>(of_mpi->add_communicator(1, 3, 4));
  const RecordedCall finalize = {calls::Operation::finalize, calls::DataType::uint8, calls::ReduceOp::sum, 0, 3, 0};
  of_mpi->fail(of_mpi->begin(call(1)), -1);
  EXPECT_EQ(read("42.0", 3), "in allreduce #1 (1048576 float32, 4 MiB)");
  of_mpi->fail(of_mpi->begin(call(2)), recorder_format::too_long);
  of_mpi->complete(of_mpi->begin(finalize));
  EXPECT_EQ(read("42.0", 3), "in allreduce #2 (1048576 float32, 4 MiB), where a message was too long");
  EXPECT_TRUE(is_last_call(*read("42.0", 3)));
  EXPECT_TRUE(was_cut_short(*read("42.0", 3)));
  of_mpi->complete(of_mpi->begin(call(4)));
  EXPECT_EQ(read("42.0", 3), "after allreduce #4 (1048576 float32, 4 MiB)") << "it has gone on after the error";
}

TEST_F(LastCall, IsNotReadFromOtherPeoplesFilesOrOtherPlaces) {
  EXPECT_EQ(read("42.0", 2, 1), std::nullopt) << "the folder is not that user's";
  EXPECT_EQ(read("42.0", 3), std::nullopt);
  EXPECT_EQ(read("43.0"), std::nullopt);
  EXPECT_EQ(read("../42.0"), std::nullopt);
  EXPECT_EQ(read("."), std::nullopt);
}

TEST_F(LastCall, IsNotReadThroughLinks) {
  ASSERT_EQ(::symlink((root_ / "42.0").c_str(), (root_ / "43.0").c_str()), 0);
  EXPECT_EQ(read("43.0"), std::nullopt);
  ASSERT_EQ(::symlink("2.trace", (root_ / "42.0/1.trace").c_str()), 0);
  EXPECT_EQ(read("42.0", 1), std::nullopt);
  ASSERT_EQ(::mkfifo((root_ / "42.0/0.trace").c_str(), 0600), 0);
  EXPECT_EQ(read("42.0", 0), std::nullopt);
}

/// As a folder of the user's on a scratch file system may be.
TEST_F(LastCall, IsReadBehindALinkThatTheUserHasNamed) {
  const ScratchFolder home;
  ASSERT_EQ(::symlink(root_.path().c_str(), (home / "scratch").c_str()), 0);
  const std::array<std::string, 1> roots = {home / "scratch"};
  EXPECT_TRUE(last_call_of(recordings_of(roots, ::geteuid(), "42.0", 2)));
}

TEST_F(LastCall, IsOfOurOwnWordsWhateverTheFileHolds) {
  std::mt19937 dice(42);
  std::string honest;
  {
    std::ifstream file(root_ / "42.0/2.trace", std::ios::binary);
    honest.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (int round = 0; round < 500; ++round) {
    std::string bytes = honest;
    for (int i = 0; i < 30; ++i) bytes[8192 + dice() % 128] = static_cast<char>(dice());
    std::ofstream(root_ / "42.0/2.trace", std::ios::binary) << bytes;
    const auto text = read();
    EXPECT_TRUE(!text || is_last_call(*text)) << *text;
  }
}

/// It may have left the others before any of its calls: they wait for it in their first.
TEST_F(LastCall, IsNoneYetWhereTheRankHasMadeNoCall) {
  const auto early = FlightRecorder::create(root_ / "42.0", {"42.0", 3, 4, 1, "node1"}, 16);
  ASSERT_TRUE(early);
  EXPECT_EQ(read("42.0", 3), "before its first call");
  EXPECT_TRUE(is_last_call(*read("42.0", 3)));
  EXPECT_TRUE(is_between_calls(*read("42.0", 3)));
  EXPECT_TRUE(is_between_calls(*read()));
}

TEST(LastCallText, IsNarrow) {
  EXPECT_TRUE(is_last_call("in allreduce #42 (1048576 float32, 4 MiB)"));
  for (const char* const text : {"", "in", "before", "before its first call, root", "killed by root", "in a;b",
                                 "in \x1b[2J", "in a\n", "in /etc", "after $(x)"}) {
    EXPECT_FALSE(is_last_call(text)) << text;
  }
  EXPECT_FALSE(is_last_call("in " + std::string(longest_last_call, 'a')));
}

}  // namespace
}  // namespace amldist::trace
