// Who came last to the calls that have ended, on recordings made up by hand.
#include "trace/diagnosis/waits.hpp"

#include "support.hpp"

namespace amldist::trace::waits_test {
namespace {

using amldist::testing::expect_sentence;
using recorder_format::State;

constexpr std::int64_t start = 1'700'000'000'000'000'000;
constexpr std::int64_t ms = 1'000'000;
constexpr std::uint32_t ranks = 4;

/// A rank whose calls, one every 100 ms, all end together; it comes `late` to them, and its clock is `skew` ahead.
Recording rank_that_comes(std::uint32_t rank, std::int64_t late, std::uint64_t calls = 40, std::int64_t skew = 0) {
  Recording recording;
  recording.rank = rank;
  recording.size = ranks;
  recording.local_rank = rank % 2;
  recording.host = "node" + std::to_string(1 + rank / 2);
  recording.source = "mpi";
  recording.writer = Writer::runs;
  recording.created_ns = start;
  recording.communicators.push_back({0, 1, rank, ranks, calls, calls, false, "world", MemberRanks::row(0, 1, ranks)});
  for (std::uint64_t i = 1; i <= calls; ++i) {
    CallRecord call;
    call.ticket = call.sequence = i;
    call.operation = calls::Operation::allreduce;
    call.state = State::completed;
    const std::int64_t begin = start + skew + static_cast<std::int64_t>(i) * 100 * ms;
    call.enqueued_ns = call.started_ns = begin + late;
    call.ended_ns = begin + 50 * ms;
    recording.calls.push_back(call);
  }
  return recording;
}

/// Rank 2 comes 40 ms late to each call.
std::vector<Recording> step_with_straggler() {
  return {rank_that_comes(0, 0), rank_that_comes(1, ms), rank_that_comes(2, 40 * ms), rank_that_comes(3, 0)};
}

TEST(Waits, AreForTheRankThatSpendsLeastInTheCalls) {
  const StepWaits waits = find_waits(step_with_straggler());
  EXPECT_EQ(waits.calls, 40U);
  EXPECT_EQ(waits.awaited, 40U);
  EXPECT_EQ(waits.waited_ns, 40 * (40 + 39 + 40) * ms);
  const auto straggler = straggler_in(waits);
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 2U);
  EXPECT_DOUBLE_EQ(waits.share_of(*straggler), 1);
  EXPECT_EQ(
      sentence(waits, *straggler),
      "rank 2 (local 0) on node2: the others waited for it in 40 of 40 calls, which is 100 % of all waits and 30 % "
      "of the time of all ranks");
  expect_sentence(sentence(waits, *straggler));
}

TEST(Waits, DoNotDependOnTheClocksOfNodes) {
  auto step = step_with_straggler();
  step[3] = rank_that_comes(3, 0, 40, 3'600'000 * ms);
  EXPECT_EQ(straggler_in(find_waits(step))->rank, 2U);
}

TEST(Waits, ForEachInTurnMakeNobodyAStraggler) {
  auto step = step_with_straggler();
  for (std::size_t i = 0; i < step[2].calls.size(); ++i) {  // the late one is another in every call
    std::swap(step[i % ranks].calls[i], step[2].calls[i]);
  }
  const StepWaits waits = find_waits(step);
  EXPECT_EQ(waits.ranks.size(), ranks);
  EXPECT_FALSE(straggler_in(waits));
}

TEST(Waits, WithoutMuchCostMakeNobodyAStraggler) {
  const std::vector<Recording> step = {rank_that_comes(0, 0), rank_that_comes(1, 0), rank_that_comes(2, 2 * ms),
                                       rank_that_comes(3, 0)};
  EXPECT_EQ(find_waits(step).ranks.at(0).calls, 40U);
  EXPECT_FALSE(straggler_in(find_waits(step))) << "2 ms of 100";
  const std::vector<Recording> once = {rank_that_comes(0, 0, 4), rank_that_comes(1, 0, 4),
                                       rank_that_comes(2, 40 * ms, 4), rank_that_comes(3, 0, 4)};
  EXPECT_FALSE(straggler_in(find_waits(once))) << "four calls are not again and again";
  auto checkpoint = std::vector<Recording>{rank_that_comes(0, 0), rank_that_comes(1, 0), rank_that_comes(2, 4 * ms),
                                           rank_that_comes(3, 0)};
  for (Recording& each : checkpoint) {
    if (each.rank != 2) each.calls[10].enqueued_ns -= 2000 * ms;
    each.calls[10].started_ns = each.calls[10].enqueued_ns;
  }
  ASSERT_GT(find_waits(checkpoint).share_of(find_waits(checkpoint).ranks.at(0)), 0.9);
  EXPECT_FALSE(straggler_in(find_waits(checkpoint))) << "most of it was once";
}

TEST(Waits, AreNotCountedWhereTheEndOrTheOthersAreUnknown) {
  auto nccl = step_with_straggler();
  for (Recording& each : nccl) each.source = "nccl";
  EXPECT_EQ(find_waits(nccl).calls, 0U) << "the host does not know when the device ends them";
  auto posted = step_with_straggler();
  for (Recording& each : posted) {
    for (CallRecord& call : each.calls) call.started_ns += 1;  // MPI_Iallreduce, waited for later
  }
  EXPECT_EQ(find_waits(posted).calls, 0U);
  auto rooted = step_with_straggler();
  for (Recording& each : rooted) {
    for (CallRecord& call : each.calls) call.operation = calls::Operation::broadcast;
  }
  EXPECT_EQ(find_waits(rooted).calls, 0U) << "a root need not wait for the others";
  auto fewer = step_with_straggler();
  fewer.pop_back();
  EXPECT_EQ(find_waits(fewer).calls, 0U);
  EXPECT_FALSE(straggler_in(find_waits({})));
}

}  // namespace
}  // namespace amldist::trace::waits_test
