// Which files the hang watch takes for recorders of its step.
#include "spank/stepd/watched_recorders.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <thread>

#include "scratch.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::spank::watched_recorders_test {
namespace {

using std::chrono::milliseconds;

/// A launcher's step on node1, and the file of a rank in its folder.
class WatchedRecorders : public ::testing::Test {
 protected:
  WatchedRecorders() { EXPECT_EQ(::mkdir((root_ / "42.0").c_str(), 0700), 0); }
  [[nodiscard]] trace::FlightRecorder record(std::uint32_t rank, const std::string& host = "node1") {
    auto made = trace::FlightRecorder::create(root_ / "42.0", {"42.0", rank, 4, 0, host, "mpi"}, 16);
    EXPECT_TRUE(made);
    return std::move(*made);
  }

  testing::ScratchFolder root_;
  WatchedNode node_{.srun = {},
                    .rights = {},
                    .roots = {"/nonexistent", root_.path()},
                    .step = "42.0",
                    .host = "node1",
                    .ranks = {0},
                    .has_launchers = true};
};

TEST_F(WatchedRecorders, AreThoseOfItsOwnRanks) {
  const auto own = record(2);
  const auto others = record(3, "node2");
  EXPECT_EQ(named_ranks(node_), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_TRUE(recording_of(node_, 2, ".mpi"));
  EXPECT_TRUE(has_recorder(node_, 2, ".mpi"));
  EXPECT_FALSE(has_recorder(node_, 2, ".nccl"));
  EXPECT_FALSE(recording_of(node_, 3, ".mpi"));
}

TEST_F(WatchedRecorders, SayWhichTaskHasEndedWithStatus0) {
  static_cast<void>(record(0));
  static_cast<void>(record(1));
  node_.has_launchers = false;
  node_.ranks = {1, 0};
  EXPECT_FALSE(recording_of(node_, 0, ".mpi")->has_exited) << "nobody has said so";
  const auto exited = std::make_shared<ExitedTasks>(2);
  node_.exited = exited;
  exited->add(1);
  exited->add(7);  // no such task
  EXPECT_TRUE(recording_of(node_, 0, ".mpi")->has_exited);
  EXPECT_FALSE(recording_of(node_, 1, ".mpi")->has_exited) << "it runs, or failed";
  node_.has_launchers = true;
  EXPECT_FALSE(recording_of(node_, 0, ".mpi")->has_exited) << "its numbers are the launcher's";
}

/// A requeued job has the same number, and its steps count from 0 again.
TEST_F(WatchedRecorders, AreNotThoseOfAnEarlierRunOfTheJob) {
  static_cast<void>(record(2));
  std::this_thread::sleep_for(milliseconds(20));
  node_.begin = Clock::now() + milliseconds(1000);  // a second later is the same moment
  EXPECT_FALSE(recording_of(node_, 2, ".mpi"));
  EXPECT_FALSE(has_recorder(node_, 2, ".mpi"));
  std::this_thread::sleep_for(milliseconds(20));
  const auto present = record(2);
  EXPECT_TRUE(recording_of(node_, 2, ".mpi"));
  EXPECT_TRUE(has_recorder(node_, 2, ".mpi"));
}

}  // namespace
}  // namespace amldist::spank::watched_recorders_test
