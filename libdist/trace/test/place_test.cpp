#include "trace/record/record_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>

#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::expect_sentence;
using amldist::testing::ScratchFolder;

TEST(TracePlace, IsMemoryOfTheUserUnlessNamed) {
  EXPECT_EQ(trace_roots("", 1000), (std::vector<std::string>{"/dev/shm/aml-dist-1000", "/tmp/aml-dist-1000"}));
  EXPECT_EQ(trace_roots("/scratch/me", 1000), (std::vector<std::string>{"/scratch/me"}));
  EXPECT_TRUE(trace_roots("off", 1000).empty());
  EXPECT_TRUE(trace_roots("none", 1000).empty());
}

TEST(TracePlace, IsAFolderForTheUserOnly) {
  const ScratchFolder scratch;
  const std::string given = scratch / "traces";
  const auto folder = make_trace_folder(given, "42.0");
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(**folder, scratch / "traces/42.0");
  struct stat status = {};
  ASSERT_EQ(::stat((*folder)->c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  EXPECT_TRUE(make_trace_folder(given, "42.0")) << "the second rank finds it there";
}

TEST(TracePlace, IsNeverAFolderThatOthersCanWrite) {
  const ScratchFolder scratch;
  ASSERT_EQ(::mkdir((scratch / "42.0").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((scratch / "42.0").c_str(), 0777), 0);
  ASSERT_EQ(::symlink("/tmp", (scratch / "42.1").c_str()), 0);
  std::ofstream(scratch / "42.2") << "a file";
  const std::string given = scratch.path();
  for (const char* const step : {"42.0", "42.1", "42.2"}) {
    const auto folder = make_trace_folder(given, step);
    ASSERT_FALSE(folder) << step;
    expect_sentence(folder.error().message);
  }
}

TEST(TracePlace, IsNowhereWhenSwitchedOff) {
  const auto folder = make_trace_folder("off", "42.0");
  ASSERT_TRUE(folder);
  EXPECT_FALSE(folder->has_value());
}

TEST(TracePlace, KeepsTheNewestDeadStepsAndAllLivingOnes) {
  const ScratchFolder root;
  std::optional<FlightRecorder> living;
  for (std::size_t i = 0; i < kept_steps + 4; ++i) {
    const std::string step = root / (std::to_string(i) + ".0");
    ASSERT_EQ(::mkdir(step.c_str(), 0700), 0);
    auto recorder = FlightRecorder::create(step, {"", 0, 1, 0, ""}, 16);
    ASSERT_TRUE(recorder);
    if (i != 1) recorder->close(FlightRecorder::Ending::failed);
    else living = std::move(*recorder);
    const std::array<timespec, 2> times = {{{static_cast<time_t>(1000 + i), 0}, {static_cast<time_t>(1000 + i), 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, step.c_str(), times.data(), 0), 0);
  }
  const pid_t other = ::fork();  // its own locks would not show to the process that holds them
  if (other == 0) {
    prune_steps(root.path(), "own.0");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(root.path())) left.insert(entry.path().filename());
  EXPECT_EQ(left.size(), kept_steps);  // one less than that, for the step that begins, and the living one
  EXPECT_TRUE(left.contains("1.0"));
  EXPECT_FALSE(left.contains("0.0"));
  EXPECT_TRUE(left.contains("5.0"));
}

TEST(TracePlace, KeepsABoundedNumberOfBytesOfDeadSteps) {
  const ScratchFolder root;
  constexpr std::size_t steps = 6;  // of a quarter of the bound each
  for (std::size_t i = 0; i < steps; ++i) {
    const std::string step = root / (std::to_string(i) + ".0");
    ASSERT_EQ(::mkdir(step.c_str(), 0700), 0);
    const int file = ::open((step + "/0.trace").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::posix_fallocate(file, 0, static_cast<off_t>(kept_bytes / 4)), 0);
    ::close(file);
    const auto age = static_cast<time_t>(1000 + i);
    const std::array<timespec, 2> times = {{{age, 0}, {age, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, step.c_str(), times.data(), 0), 0);
  }
  prune_steps(root.path(), "own.0");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(root.path())) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"2.0", "3.0", "4.0", "5.0"}));
}

TEST(TracePlace, TakesNamesThatCannotLeaveTheFolder) {
  for (const char* const name : {"42.0", "4294967295.12", "prterun-host-1_1", "a"})
    EXPECT_TRUE(is_trace_name(name)) << name;
  for (const char* const name : {"", ".", "..", "../x", "a/b", ".hidden", "a b", "a\n"}) {
    EXPECT_FALSE(is_trace_name(name)) << name;
    EXPECT_FALSE(make_trace_folder("", name)) << name;
    EXPECT_TRUE(is_trace_name(trace_name(name))) << name;
  }
  EXPECT_TRUE(is_trace_name(trace_name(std::string(500, '.'))));
  EXPECT_EQ(trace_name("prterun-a@1"), "prterun-a_1");
}

}  // namespace
}  // namespace amldist::trace
