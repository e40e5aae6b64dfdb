// Where a process is: asked for in shared memory, and read without trust.
#include "trace/record/process_stack.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/flight_recorder.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::ScratchFolder;
using std::chrono::milliseconds;

constexpr std::string_view python_stack =
    "Python stacks of process 7\n"
    "  thread MainThread\n"
    "    all_reduce at /venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:99\n"
    "    Trainer.step at /home/u/my code/train.py:33\n"
    "    <module> at /home/u/my code/train.py:50\n"
    "  thread Loader\n"
    "    fetch at /home/u/loader.py:1\n";

/// A recorder of source "torch", whose process is this one.
class ProcessStack : public ::testing::Test {
 protected:
  ProcessStack() {
    auto made = FlightRecorder::create(folder_.path(), {"42.0", 2, 4, 0, "node1", "torch"}, 16);
    EXPECT_TRUE(made);
    recorder_ = std::move(*made);
    recording_.path = recorder_.path();
    recording_.source = "torch";
    recording_.pid = ::getpid();
    recording_.writer = Writer::runs;
  }

  /// Answers the first request, as the package's thread would.
  void answer(std::string_view text) {
    const FileDescriptor file(::open(recording_.path.c_str(), O_RDWR | O_CLOEXEC));
    std::uint32_t wanted = 0;
    while (wanted == 0) {
      ASSERT_EQ(::pread(file.get(), &wanted, sizeof wanted, wanted_at), static_cast<ssize_t>(sizeof wanted));
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::ofstream(folder_ / "2.torch.stack") << text;
    ASSERT_EQ(::pwrite(file.get(), &wanted, sizeof wanted, wanted_at + 4), static_cast<ssize_t>(sizeof wanted));
  }

  static constexpr off_t wanted_at = offsetof(recorder_format::RecorderHeader, stacks_wanted);
  ScratchFolder folder_;
  FlightRecorder recorder_;
  Recording recording_;
};

TEST_F(ProcessStack, IsWrittenByTheProcessThatIsAsked) {
  std::thread other([&] { answer(python_stack); });
  const std::string told = stack_of(recording_, milliseconds(20'000));
  other.join();
  EXPECT_TRUE(told.starts_with(python_stack)) << told;
  EXPECT_NE(told.find("): state "), std::string::npos) << "the threads follow where there is room";
}

TEST_F(ProcessStack, IsTheStatesOfThreadsWhereNobodyAnswers) {
  const std::string told = stack_of(recording_, milliseconds(10));
  EXPECT_TRUE(told.starts_with("process " + std::to_string(::getpid()) + "\n  thread ")) << told;
}

TEST_F(ProcessStack, IsShortAndPrintableWhateverTheFileHolds) {
  std::string hostile = "a\033[31m\n";
  for (int i = 0; i < 5000; ++i) hostile += "    f at x.py:" + std::to_string(i) + "\n";
  std::thread other([&] { answer(hostile); });
  const std::string told = stack_of(recording_, milliseconds(20'000));
  other.join();
  EXPECT_LE(told.size(), longest_stack);
  EXPECT_TRUE(told.starts_with("a?[31m\n    f at x.py:0\n")) << told.substr(0, 60);
  EXPECT_TRUE(told.ends_with("\n    ...\n"));
}

TEST_F(ProcessStack, FollowsNoLink) {
  recorder_.close(FlightRecorder::Ending::failed);
  std::filesystem::rename(recording_.path, folder_ / "real");
  std::filesystem::create_symlink(folder_ / "real", recording_.path);
  EXPECT_TRUE(stack_of(recording_, milliseconds(20'000)).starts_with("process ")) << "at once, and without a request";
}

TEST_F(ProcessStack, IsEmptyForAProcessThatIsGone) {
  recording_.writer = Writer::gone;
  EXPECT_EQ(stack_of(recording_, milliseconds(10)), "");
}

TEST(InnermostCall, IsTheProgramsOwn) { EXPECT_EQ(innermost_call(python_stack), "Trainer.step at train.py:33"); }

TEST(InnermostCall, IsAnyWhereAllCallsAreInPackages) {
  EXPECT_EQ(innermost_call("  thread MainThread\n    f at /a/site-packages/b.py:3\n    g at <frozen runpy>:8\n"),
            "f at b.py:3");
}

TEST(InnermostCall, IsReadFromPySpyToo) {
  EXPECT_EQ(innermost_call(
                "Process 1: python x.py\nPython v3.11\n\nThread 1 (idle): \"MainThread\"\n    wait (torch/x.py:9)\n"
                "    <module> (x.py:3)\n"),
            "wait at x.py:9");
}

TEST(InnermostCall, IsEmptyWithoutPython) {
  EXPECT_EQ(innermost_call("process 7\n  thread 7 (a.out): state S in hrtimer_nanosleep\n"), "");
  EXPECT_EQ(innermost_call(""), "");
}

}  // namespace
}  // namespace amldist::trace
