#include "step/cause/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "scratch.hpp"
#include "support.hpp"

namespace amldist::step::error_file_test {
namespace {

using Kind = Cause::Kind;

std::string written(std::int64_t age = 0, const std::string& type = "RuntimeError") {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return "amldist-error 1\n" + std::to_string(now.tv_sec - age) + "\n" + type + "\nx\n/a/train.py\n8\nf\n";
}

/// The user's folder of a step, and the question about its rank 3.
struct Step {
  testing::ScratchFolder root;
  ErrorPlaces places{
      .roots = {"/no/such/folder", root.path()}, .step = "12.0", .rank = 3, .user = ::geteuid(), .elapsed_ms = 10'000};
  std::string folder = root / "12.0";

  Step() { std::filesystem::create_directory(folder); }
  void put(const std::string& name, const std::string& content) const { std::ofstream(folder + "/" + name) << content; }
  [[nodiscard]] std::optional<Cause> found() const { return find_as_user(places).exception; }
};

const Cause raised{Kind::exception, "RuntimeError: x at train.py:8 in f"};

TEST(ErrorFile, IsReadAndRemovedWithItsFolder) {
  const Step step;
  step.put("3.error", written());
  EXPECT_EQ(step.found(), raised);
  EXPECT_FALSE(std::filesystem::exists(step.folder));
  EXPECT_EQ(step.found(), std::nullopt);
}

TEST(ErrorFile, OfAThreadCountsWhereTheProgramHasNone) {
  const Step step;
  step.put("3.error.thread", written(0, "KeyError"));
  step.put("4.error", written());
  EXPECT_EQ(step.found()->text, "KeyError: x at train.py:8 in f");
  EXPECT_TRUE(std::filesystem::exists(step.folder + "/4.error")) << "another rank's";
  step.put("3.error.thread", written(0, "KeyError"));
  step.put("3.error", written());
  EXPECT_EQ(step.found(), raised);
}

TEST(ErrorFile, OfAnEarlierStepIsNotThisOnes) {
  const Step step;
  step.put("3.error", written(30));
  EXPECT_EQ(step.found(), std::nullopt);
}

TEST(ErrorFile, WhatIsNoFileOfTheUsersIsNotOpened) {
  Step step;
  const std::string file = step.folder + "/3.error";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(step.found(), std::nullopt) << "a FIFO does not block";
  std::filesystem::create_directory(step.folder);
  step.put("real", written());
  ASSERT_EQ(::symlink("real", file.c_str()), 0);
  EXPECT_EQ(step.found(), std::nullopt) << "a link";
  step.put("3.error", written());
  step.places.user += 1;
  EXPECT_EQ(step.found(), std::nullopt) << "another user's";
  step.places.user -= 1;
  std::filesystem::remove_all(step.folder);
  std::filesystem::create_directory(step.root / "elsewhere");
  ASSERT_EQ(::symlink("elsewhere", step.folder.c_str()), 0);
  std::ofstream(step.root / "elsewhere" + "/3.error") << written();
  EXPECT_EQ(step.found(), std::nullopt) << "a folder that is a link";
}

TEST(ErrorFile, OfTorchElasticIsReadWhereThereIsNoOther) {
  Step step;
  step.places.elastic_file = step.root / "elastic.json";
  std::ofstream(step.places.elastic_file) << R"({"message": "ValueError: y"})";
  step.put("3.error", written());
  EXPECT_EQ(step.found(), raised);
  EXPECT_EQ(step.found(), (Cause{Kind::exception, "ValueError: y"}));
  timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, step.places.elastic_file.c_str(), old, 0), 0);
  EXPECT_EQ(step.found(), std::nullopt) << "left by an earlier step";
  step.places.elastic_file = "elastic.json";
  EXPECT_EQ(step.found(), std::nullopt) << "relative to whatever";
}

TEST(ErrorFile, NoMoreIsReadThanMayMatter) {
  const Step step;
  step.put("3.error", written() + std::string(std::size_t{20} << 20, 'x'));
  EXPECT_EQ(step.found(), raised);
}

TEST(FullSpace, IsAFactOfABusError) {
  ErrorPlaces places{.had_bus_error = true};
  const auto space = find_as_user(places).space;
  if (!space) GTEST_SKIP() << "no /dev/shm";
  EXPECT_NE(space->text.find("/dev/shm"), std::string::npos);
  EXPECT_TRUE(space->kind == Kind::fact || space->kind == Kind::space);
}

}  // namespace
}  // namespace amldist::step::error_file_test
