#include "trace/record/process_recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::expect_sentence;
using amldist::testing::ScratchFolder;
using Ending = FlightRecorder::Ending;

RecorderOwner process_owner(std::uint32_t rank = 3) { return {"42.0", rank, 8, 1, "node1"}; }

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// The folder of a step, which goes with its last file.
std::string step_in(const ScratchFolder& folder) {
  std::string path = folder / "42.0";
  ::mkdir(path.c_str(), 0700);
  return path;
}

std::shared_ptr<ProcessRecorder> open_in(const std::string& folder, std::uint32_t rank = 3) {
  auto recorder = ProcessRecorder::open(folder, process_owner(rank));
  EXPECT_TRUE(recorder) << recorder.error().message;
  return recorder ? *recorder : nullptr;
}

TEST(ProcessRecorder, WorldsOfAProcessShareOneFileUntilTheLastHasEnded) {
  const ScratchFolder folder;
  const auto first = open_in(step_in(folder));
  const auto second = open_in(step_in(folder));
  ASSERT_EQ(first, second);
  const std::array<std::uint32_t, 2> members = {3, 7};
  static_cast<void>(first->add_communicator({1, 0, 8, "world", 0, {}}));
  const auto slot = second->add_communicator({2, 0, 2, "dp", 0, members});
  static_cast<void>(
      second->calls().begin({calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, slot, 1, 4}));
  const auto recording = read_recording(AT_FDCWD, folder / "42.0/3.trace");
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->communicators.size(), 2U);
  EXPECT_EQ(recording->communicators[1].name, "dp");
  EXPECT_EQ(recording->communicators[1].world_ranks[1], 7U);
  EXPECT_EQ(recording->calls.at(0).communicator, slot);
  first->leave(Ending::well);
  EXPECT_TRUE(is_there(folder / "42.0/3.trace"));
  second->leave(Ending::well);
  EXPECT_FALSE(is_there(folder / "42.0"));
}

TEST(ProcessRecorder, TheFileStaysIfOneOfTheWorldsFailed) {
  const ScratchFolder folder;
  const auto first = open_in(step_in(folder));
  const auto second = open_in(step_in(folder));
  first->leave(Ending::failed);
  second->leave(Ending::well);
  EXPECT_TRUE(is_there(folder / "42.0/3.trace"));
  const auto third = open_in(step_in(folder));
  EXPECT_NE(third, first) << "the next world begins a new one";
  third->leave(Ending::well);
  EXPECT_FALSE(is_there(folder / "42.0/3.trace"));
}

TEST(ProcessRecorder, AProcessIsOneRankOfAStep) {
  const ScratchFolder folder;
  const auto first = open_in(step_in(folder));
  const auto other = ProcessRecorder::open(step_in(folder), process_owner(4));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::mismatch);
  expect_sentence(other.error().message);
  first->leave(Ending::well);
  const auto later = open_in(step_in(folder), 4);
  later->leave(Ending::well);
}

TEST(ProcessRecorder, AChildDoesNotWriteIntoItsParentsFile) {
  const ScratchFolder folder;
  const auto parents = open_in(step_in(folder));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(ProcessRecorder::open(step_in(folder), process_owner()) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the rank's file belongs to a living process";
  EXPECT_TRUE(is_there(folder / "42.0/3.trace"));
  parents->leave(Ending::well);
}

}  // namespace
}  // namespace amldist::trace
