// Rates of a rank's calls, from recordings made by hand.
#include "trace/diagnosis/traffic.hpp"

#include <gtest/gtest.h>

namespace amldist::trace {
namespace {

using calls::Operation;
using recorder_format::State;

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t now = 1'700'000'000 * second;

class Rank {
 public:
  explicit Rank(std::uint32_t ranks, std::string source = "amldist") {
    recording_.size = ranks;
    recording_.source = std::move(source);
    recording_.writer = Writer::runs;
    recording_.created_ns = now - 1000 * second;
    recording_.communicators.push_back({0, 1, 0, ranks, 0, 0, false, "world", MemberRanks::row(0, 1, ranks)});
  }

  Rank& with(Operation operation, std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes = 1000) {
    CallRecord call;
    call.operation = operation;
    call.bytes = bytes;
    call.enqueued_ns = call.started_ns = now + begin_ns;
    call.ended_ns = end_ns != 0 ? now + end_ns : 0;
    call.state = end_ns != 0 ? State::completed : State::started;
    call.ticket = ++recording_.recorded;
    recording_.calls.push_back(call);
    return *this;
  }

  Recording recording_;
};

Traffic only(const Recording& recording) {
  const auto found = find_traffic(recording, now);
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? Traffic{} : found.front();
}

TEST(Traffic, IsAboutTheLastMinute) {
  const auto found = only(Rank(4)
                              .with(Operation::allreduce, -90 * second, -80 * second)
                              .with(Operation::allreduce, -62 * second, -59 * second)
                              .with(Operation::allreduce, -3 * second, -1 * second)
                              .recording_);
  EXPECT_DOUBLE_EQ(found.calls, 2.0 / 60);
  EXPECT_DOUBLE_EQ(found.bytes, 2000.0 / 60);
  EXPECT_NEAR(*found.part, 3.0 / 60, 1e-9);
  EXPECT_NEAR(*found.bus, 1.5 * 2000 / 5, 1e-6) << "a call's whole time, though it began before the minute";
}

TEST(Traffic, OfAWrappedRingIsAboutWhatTheRingHolds) {
  auto rank = Rank(2).with(Operation::barrier, -10 * second, -9 * second);
  rank.recording_.recorded = 5000;
  EXPECT_DOUBLE_EQ(only(rank.recording_).calls, 0.1);
}

TEST(Traffic, ACallThatIsRecordedWithoutItsCopyingHasNoRate) {
  auto rank = Rank(2).with(Operation::allreduce, -10 * second, -10 * second + 999, 4096);
  EXPECT_FALSE(only(rank.recording_).bus);
  rank.with(Operation::allreduce, -5 * second, -4 * second, 4096);
  EXPECT_NEAR(only(rank.recording_).bus.value_or(0), 4096, 1e-6);
  EXPECT_DOUBLE_EQ(only(rank.recording_).bytes, 2 * 4096.0 / 60);
}

TEST(Traffic, CountsTheTimeOfACallThatHasNotEnded) {
  const auto found = only(Rank(4).with(Operation::allreduce, -30 * second, 0).recording_);
  EXPECT_DOUBLE_EQ(found.calls, 0);
  EXPECT_NEAR(*found.part, 0.5, 1e-9);
  EXPECT_FALSE(found.bus);
}

TEST(Traffic, HasTheFactorsOfNcclTests) {
  const auto bus = [](Operation operation) {
    return only(Rank(4).with(operation, -2 * second, -1 * second).recording_).bus.value_or(0);
  };
  EXPECT_NEAR(bus(Operation::allreduce), 1500, 1e-6);
  EXPECT_NEAR(bus(Operation::allgather), 3000, 1e-6) << "of a result of 4000 bytes three quarters";
  EXPECT_NEAR(bus(Operation::reduce_scatter), 750, 1e-6);
  EXPECT_NEAR(bus(Operation::alltoall), 750, 1e-6);
  EXPECT_NEAR(bus(Operation::broadcast), 1000, 1e-6);
  EXPECT_NEAR(bus(Operation::send), 1000, 1e-6);
  EXPECT_FALSE(only(Rank(1).with(Operation::allreduce, -2 * second, -1 * second).recording_).bus);
}

TEST(Traffic, SaysNoTimeWhereNobodyKnowsIt) {
  for (const auto* const source : {"nccl", "torch"}) {
    const auto found = only(Rank(4, source).with(Operation::allreduce, -2 * second, -1 * second).recording_);
    EXPECT_DOUBLE_EQ(found.calls, 1.0 / 60);
    EXPECT_FALSE(found.part || found.bus) << source;
  }
}

TEST(Traffic, OfAnythingStrangeIsFinite) {
  auto rank = Rank(4).with(Operation::allreduce, 5 * second, 1).with(Operation{77}, -1, -second, ~std::uint64_t{0});
  rank.recording_.calls.front().communicator = 99;
  rank.recording_.created_ns = now + 7 * second;
  for (const auto& each : find_traffic(rank.recording_, now)) EXPECT_GE(each.part.value_or(0), 0);
  rank.recording_.created_ns = 0;
  for (const auto& each : find_traffic(rank.recording_, now)) EXPECT_GE(each.part.value_or(0), 0);
  EXPECT_TRUE(find_traffic(Recording{}, 0).empty());
}

}  // namespace
}  // namespace amldist::trace
