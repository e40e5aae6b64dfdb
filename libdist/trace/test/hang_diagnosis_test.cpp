// Why a step stands still, on recordings made up by hand.
#include "trace/diagnosis/hang_diagnosis.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "trace/record/mpi_functions.hpp"

namespace amldist::trace::hang_diagnosis_test {
namespace {

using recorder_format::State;
using Kind = HangDiagnosis::Kind;

constexpr std::int64_t start = 1'700'000'000'000'000'000;

/// A rank of a step with four ranks, which knows the world and a group of all with the id 2.
Recording traced_rank(std::uint32_t rank) {
  Recording recording;
  recording.rank = rank;
  recording.size = 4;
  recording.local_rank = rank % 2;
  recording.host = "node" + std::to_string(rank / 2);
  recording.source = "mpi";
  recording.writer = Writer::runs;
  recording.communicators.push_back({0, 1, rank, 4, 0, 0, false, "world", MemberRanks::row(0, 1, 4)});
  recording.communicators.push_back({1, 2, rank, 4, 0, 0, false, "dp", MemberRanks::row(0, 1, 4)});
  return recording;
}

Recording calling(Recording recording, calls::Operation operation, std::uint32_t slot = 0, std::int32_t peer = -1,
                  State state = State::started) {
  CallRecord call;
  const bool of_all = recorder_format::is_collective(operation);
  call.ticket = recording.calls.size() + 1;
  call.sequence = of_all ? ++recording.communicators.at(slot).entered : 0;
  call.bytes = 4096;
  call.type = calls::DataType::float32;
  call.operation = operation;
  call.communicator = slot;
  call.peer = peer;
  call.state = state;
  call.enqueued_ns = call.started_ns = start + static_cast<std::int64_t>(call.ticket);
  recording.calls.push_back(call);
  return recording;
}

TEST(HangDiagnosis, NamesTheOneThatHasNotCome) {
  const std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::allreduce, 1),
                                       calling(traced_rank(1), calls::Operation::allreduce, 1), traced_rank(2),
                                       calling(traced_rank(3), calls::Operation::allreduce, 1)};
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::not_come);
  EXPECT_EQ(sentence(*diagnosis, 60),
            "allreduce #1 (1024 float32, 4 KiB) of group 'dp': rank 2 (local 0) on node1 has not called it for 60 s; "
            "3 ranks wait");
}

TEST(HangDiagnosis, NamesBothRootsWhereTheyDiffer) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    step.push_back(calling(traced_rank(rank), calls::Operation::broadcast, 0, rank == 2 ? 3 : 0));
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
  EXPECT_EQ(sentence(*diagnosis, 60),
            "broadcast #1 (1024 float32, 4 KiB): rank 2 (local 0) on node1 called broadcast #1 (1024 float32, 4 KiB) "
            "with root 3 instead of root 0; 3 ranks wait");
  EXPECT_NE(sentence(diagnosis->stall).find("with root 3 instead of root 0; 3 ranks wait"), std::string::npos)
      << sentence(diagnosis->stall);
}

TEST(HangDiagnosis, OfARankThatIsStuckNamesTheOneWhoseSizeDifferedBefore) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording own = calling(traced_rank(rank), calls::Operation::broadcast, 0, 0, State::completed);
    own = calling(own, calls::Operation::broadcast, 0, 0, rank == 3 ? State::started : State::completed);
    if (rank != 3) own = calling(own, calls::Operation::allreduce);
    step.push_back(own);
  }
  ASSERT_TRUE(diagnose_hang(step));
  EXPECT_EQ(diagnose_hang(step)->kind, Kind::slow);
  step[2].calls[0].bytes = 8192;
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing.front().rank, 2U) << sentence(*diagnosis, 60);
}

/// mpi4py raises where MPI returns an error, and Python then calls MPI_Finalize, while the others go on to their next
/// call.
TEST(HangDiagnosis, OfACallThatMpiFailedNamesTheOneWhoseSizeDiffered) {
  for (const std::uint32_t slot : {0U, 1U}) {
    std::vector<Recording> step;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Recording own = calling(traced_rank(rank), calls::Operation::allreduce, 0, -1, State::completed);
      own = calling(own, calls::Operation::broadcast, slot, 0, rank == 1 ? State::failed : State::completed);
      if (rank == 2) own.calls.back().bytes = 8192;
      step.push_back(calling(own, rank == 1 ? calls::Operation::finalize : calls::Operation::allreduce));
    }
    const auto diagnosis = diagnose_hang(step);
    ASSERT_TRUE(diagnosis);
    EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
    ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
    EXPECT_EQ(diagnosis->stall.missing.front().rank, 2U) << sentence(*diagnosis, 60);
    step[2].calls[1].bytes = 4096;
    const auto own_fault = diagnose_hang(step);
    ASSERT_TRUE(own_fault);
    ASSERT_EQ(own_fault->stall.missing.size(), 1U);
    EXPECT_EQ(own_fault->stall.missing.front().rank, 1U) << sentence(*own_fault, 60);
  }
}

/// Where a node has not told the other calls of this number.
TEST(HangDiagnosis, OfACallThatMpiFailedLeavesOpenWhoIsWrongWhereNoCallIsKnownToDiffer) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording own = calling(traced_rank(rank), calls::Operation::broadcast, 1, 0, State::completed);
    if (rank == 1) {
      own.calls.back().state = State::failed;
      own.calls.back().status = recorder_format::too_long;
    }
    step.push_back(calling(own, rank == 1 ? calls::Operation::finalize : calls::Operation::allreduce));
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(sentence(*diagnosis, 0),
            "call #1 of group 'dp': rank 1 on node0 received a message in it that was too long; nothing recorded tells "
            "whose call is wrong; 3 ranks wait");
}

TEST(HangDiagnosis, OfACallThatMpiFailedOnAllRanksNobodyIsNamedButWhoDoesNotEnd) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording own = calling(traced_rank(rank), recorder_format::other::one_sided, 0, -1, State::failed);
    step.push_back(rank == 1 ? own : calling(own, calls::Operation::finalize));
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing.front().rank, 1U) << sentence(*diagnosis, 60);
  step[1] = calling(step[1], calls::Operation::finalize);
  EXPECT_FALSE(diagnose_hang(step));
}

TEST(HangDiagnosis, OfLibamldistsFailedCallsNamesTheOneWhoseCallDifferedBefore) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording own = calling(traced_rank(rank), calls::Operation::broadcast, 0, rank == 2 ? 3 : 0, State::completed);
    step.push_back(calling(own, calls::Operation::broadcast, 0, 0, State::failed));
    step.back().writer = Writer::gone;
  }
  EXPECT_FALSE(diagnose_hang(step)) << "MPI may end a call whose arguments differ in form only";
  for (Recording& each : step) each.source = "amldist";
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing.front().rank, 2U) << sentence(*diagnosis, 60);
}

TEST(HangDiagnosis, FollowsWaitsToTheirEnd) {
  // 0 and 1 wait for 2 and 3 in the world; 3 waits for a message of 2, who computes.
  const std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::barrier),
                                       calling(traced_rank(1), calls::Operation::barrier), traced_rank(2),
                                       calling(traced_rank(3), calls::Operation::recv, 0, 2)};
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::not_come);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing[0].rank, 2U);
  EXPECT_EQ(diagnosis->waits, (std::vector<std::uint32_t>{0, 1, 3}));
}

TEST(HangDiagnosis, FindsACircleOfSends) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(calling(traced_rank(rank), calls::Operation::send, 0, static_cast<std::int32_t>((rank + 1) % 4)));
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::deadlock);
  EXPECT_EQ(diagnosis->circle.size(), 4U);
  EXPECT_TRUE(sentence(*diagnosis, 5)
                  .starts_with("deadlock of 4 ranks for 5 s: rank 0 waits in send (1024 float32, 4 KiB) "
                               "to rank 1 for rank 1, rank 1 waits in "))
      << sentence(*diagnosis, 5);
}

TEST(HangDiagnosis, NamesTheFewInAnotherCommunicator) {
  const std::vector<Recording> step = {
      calling(traced_rank(0), calls::Operation::allreduce, 0), calling(traced_rank(1), calls::Operation::allreduce, 0),
      calling(traced_rank(2), calls::Operation::allreduce, 1), calling(traced_rank(3), calls::Operation::allreduce, 0)};
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing[0].rank, 2U);
}

TEST(HangDiagnosis, TellsTheDeadAndTheStoppedFromTheLate) {
  for (const auto& [writer, kind] : {std::pair{Writer::gone, Kind::dead}, std::pair{Writer::stopped, Kind::stopped}}) {
    Recording culprit = traced_rank(1);
    culprit.writer = writer;
    const std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::recv, 0, 1), culprit,
                                         traced_rank(2)};
    const auto diagnosis = diagnose_hang(step);
    ASSERT_TRUE(diagnosis);
    EXPECT_EQ(diagnosis->kind, kind);
    EXPECT_EQ(diagnosis->stall.missing.at(0).rank, 1U);
  }
}

TEST(HangDiagnosis, TakesAMessageUnderWayForNone) {
  const std::vector<Recording> met = {calling(traced_rank(0), calls::Operation::recv, 0, 1),
                                      calling(traced_rank(1), calls::Operation::send, 0, 0, State::enqueued)};
  EXPECT_FALSE(diagnose_hang(met));
  std::vector<Recording> other_tag = met;
  other_tag[0].calls[0].tag = 1;
  other_tag[1].calls[0].tag = 2;
  ASSERT_TRUE(diagnose_hang(other_tag)) << "they do not meet";
  const std::vector<Recording> anybody = {
      calling(traced_rank(0), calls::Operation::recv, 0, recorder_format::any_peer)};
  EXPECT_FALSE(diagnose_hang(anybody));
}

TEST(HangDiagnosis, BlamesNobodyInACallWithoutWaiting) {
  const std::vector<Recording> posted = {calling(traced_rank(0), calls::Operation::recv, 0, 1, State::enqueued),
                                         traced_rank(1)};
  EXPECT_FALSE(diagnose_hang(posted)) << "it has posted a receive and computes";
  EXPECT_FALSE(diagnose_hang(std::vector<Recording>{}));
}

TEST(HangDiagnosis, AnotherRootIsAnotherCall) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(calling(traced_rank(rank), calls::Operation::broadcast, 0, rank == 2 ? 1 : 0));
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
  EXPECT_EQ(diagnosis->stall.missing.at(0).rank, 2U);
}

TEST(HangDiagnosis, LooksBehindACallThatNobodyWaitsForYet) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(calling(traced_rank(rank), calls::Operation::barrier, 0, -1, State::enqueued));
    if (rank != 2) step.back() = calling(step.back(), calls::Operation::allreduce);
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::not_come);
  EXPECT_TRUE(sentence(*diagnosis, 60).starts_with("allreduce #2 (1024 float32, 4 KiB): rank 2 "))
      << sentence(*diagnosis, 60);
  EXPECT_EQ(diagnosis->waits, (std::vector<std::uint32_t>{0, 1, 3}));
}

TEST(HangDiagnosis, BlamesTheOneThatHasPostedACallAndGoesOnLaterThanTheOthers) {
  // Ranks 0 and 3 wait for call 1 itself, rank 1 has made another one; rank 2 has only posted call 1.
  std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::barrier),
                                 calling(traced_rank(1), calls::Operation::barrier, 0, -1, State::completed),
                                 calling(traced_rank(2), calls::Operation::barrier, 0, -1, State::enqueued),
                                 calling(traced_rank(3), calls::Operation::barrier)};
  step[1] = calling(step[1], calls::Operation::allreduce);
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing.front().rank, 2U);
}

TEST(HangDiagnosis, BlamesNobodyForCallsThatAreOnlyPosted) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(traced_rank(rank));
    if (rank != 2) step.back() = calling(step.back(), calls::Operation::barrier, 0, -1, State::enqueued);
  }
  EXPECT_FALSE(diagnose_hang(step));
  EXPECT_EQ(find_stalls(step).size(), 1U) << "which aml-dist trace shows";
}

/// Rank 0 hands out work to whoever asks; `asking` of the others wait for its answer.
std::vector<Recording> farm(const std::vector<std::uint32_t>& asking) {
  std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::recv, 0, recorder_format::any_peer)};
  for (std::uint32_t rank = 1; rank < 4; ++rank) {
    step.push_back(traced_rank(rank));
    if (std::ranges::find(asking, rank) == asking.end()) continue;
    step.back() = calling(step.back(), calls::Operation::send, 0, 0, State::completed);
    step.back() = calling(step.back(), calls::Operation::recv, 0, 0);
  }
  return step;
}

TEST(HangDiagnosis, LooksBehindWhoeverReceivesFromAnyRank) {
  const std::vector<Recording> step = farm({1, 2});  // the diagnosis points into it
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::not_come);
  EXPECT_EQ(
      sentence(*diagnosis, 60),
      "recv (1024 float32, 4 KiB) from any rank: rank 3 (local 1) on node1 has not met it for 60 s; 3 ranks wait");
}

TEST(HangDiagnosis, BlamesNobodyWhereAServerHasNothingToDo) { EXPECT_FALSE(diagnose_hang(farm({}))); }

TEST(HangDiagnosis, FindsACircleThroughAReceiveFromAnyRank) {
  const std::vector<Recording> step = farm({1, 2, 3});
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::deadlock);
  EXPECT_EQ(diagnosis->circle.size(), 2U);
}

TEST(HangDiagnosis, BlamesNobodyWhileAMessageToAnyReceiverIsUnderWay) {
  auto step = farm({1, 2});
  const auto of_any = [](const std::optional<HangDiagnosis>& diagnosis) {
    return diagnosis && diagnosis->stall.call.peer == recorder_format::any_peer;
  };
  const Recording idle = step[3];
  step[3] = calling(idle, calls::Operation::send, 0, 0);
  EXPECT_FALSE(of_any(diagnose_hang(step)));
  step[3] = calling(idle, calls::Operation::send, 0, 0, State::enqueued);
  EXPECT_TRUE(of_any(diagnose_hang(step))) << "one that was only posted may have arrived long ago";
}

/// Waits for a message on a communicator that has no slot.
Recording waiting_unjudged(Recording recording) {
  recording = calling(std::move(recording), calls::Operation::recv, 0, 1);
  recording.calls.back().communicator = recorder_format::no_slot;
  return recording;
}

TEST(HangDiagnosis, BlamesNobodyWhoWaitsWhereNobodyIsJudged) {
  std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::barrier),
                                 calling(traced_rank(1), calls::Operation::barrier), traced_rank(2),
                                 waiting_unjudged(traced_rank(3))};
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing[0].rank, 2U);
  step[2] = calling(step[2], calls::Operation::barrier);
  ASSERT_TRUE(diagnose_hang(step)) << "nobody else is known";
  EXPECT_EQ(sentence(*diagnose_hang(step), 60),
            "barrier #1: rank 3 (local 1) on node1 waits in recv (1024 float32, 4 KiB) from rank 1 on a communicator "
            "that is not judged for 60 s; 3 ranks wait");
  step[3].calls.back().operation = recorder_format::other::window;
  step[3].calls.back().tag = function_number("MPI_Win_flush");
  EXPECT_EQ(sentence(*diagnose_hang(step), 60),
            "barrier #1: rank 3 (local 1) on node1 waits in MPI_Win_flush (4 KiB), and for whom is not known "
            "for 60 s; 3 ranks wait");
}

TEST(HangDiagnosis, IsNotSureOfARankWhoseSlotsAreAllInUse) {
  // A communicator of ranks 0 to 2, which rank 1 may have without a slot; rank 2 has never had it.
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 3; ++rank) step.push_back(traced_rank(rank));
  step[0].communicators.push_back({2, 3, 0, 3, 0, 0, false, "ranks 0-2", MemberRanks::row(0, 1, 3)});
  step[0] = calling(step[0], calls::Operation::barrier, 2);
  for (std::uint32_t slot = 2; slot < recorder_format::communicator_slots; ++slot)
    step[1].communicators.push_back({slot, 1000 + slot, 1, 4, 0, 0, false, "others", MemberRanks::row(0, 1, 4)});
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing[0].rank, 2U);
}

TEST(HangDiagnosis, CountsTheWaitForARankFromItsLastCall) {
  // Rank 1 has waited for rank 0 all along, which serves the others meanwhile.
  std::vector<Recording> step = {traced_rank(0), calling(traced_rank(1), calls::Operation::recv, 0, 0), traced_rank(2),
                                 traced_rank(3)};
  EXPECT_EQ(diagnose_hang(step)->stall.since_ns, start + 1);
  constexpr std::int64_t minute = 60'000'000'000;
  step[0] = calling(step[0], calls::Operation::send, 0, 2, State::completed);
  step[0].calls.back().ended_ns = start + minute;
  EXPECT_EQ(diagnose_hang(step)->stall.since_ns, start + minute);
}

/// A grid of `rows` times `columns` ranks: the world, a group for each row, a group for each column.
std::vector<Recording> grid(std::uint32_t rows, std::uint32_t columns) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < rows * columns; ++rank) {
    const std::uint32_t row = rank / columns;
    const std::uint32_t column = rank % columns;
    Recording own = traced_rank(rank);
    own.size = rows * columns;
    own.communicators = {
        {0, 1, rank, own.size, 0, 0, false, "world", MemberRanks::row(0, 1, own.size)},
        {1, 100 + row, column, columns, 0, 0, false, "row", MemberRanks::row(row * columns, 1, columns)},
        {2, 200 + column, row, rows, 0, 0, false, "column",
         MemberRanks::row(column, static_cast<std::int32_t>(columns), rows)}};
    step.push_back(std::move(own));
  }
  return step;
}

/// Each rank reduces over its row and its column and comes to a barrier of all; `culprit` leaves out its column. The
/// others in its column wait there.
std::vector<Recording> grid_without(std::uint32_t rows, std::uint32_t columns, std::uint32_t culprit) {
  auto step = grid(rows, columns);
  for (Recording& each : step) {
    each = calling(each, calls::Operation::allreduce, 1, -1, State::completed);
    const bool waits = each.rank % columns == culprit % columns;
    if (each.rank != culprit)
      each = calling(each, calls::Operation::allreduce, 2, -1, waits ? State::started : State::completed);
    if (each.rank == culprit || !waits) each = calling(each, calls::Operation::barrier);
  }
  return step;
}

TEST(HangDiagnosis, BlamesTheRankThatLeavesOutACallOfItsColumn) {
  struct Grid {
    std::uint32_t rows, columns, culprit;
  };
  for (const auto& [rows, columns, culprit] :
       {Grid{2, 2, 3}, Grid{4, 4, 6}, Grid{8, 2, 9}, Grid{2, 8, 11}, Grid{6, 3, 17}}) {
    const auto step = grid_without(rows, columns, culprit);
    const auto diagnosis = diagnose_hang(step);
    ASSERT_TRUE(diagnosis);
    EXPECT_EQ(diagnosis->kind, Kind::wrong_call);
    ASSERT_EQ(diagnosis->stall.missing.size(), 1U) << sentence(*diagnosis, 60);
    EXPECT_EQ(diagnosis->stall.missing[0].rank, culprit) << sentence(*diagnosis, 60);
    EXPECT_EQ(diagnosis->stall.communicator_name, "column");
  }
}

TEST(HangDiagnosis, BlamesTheRankThatLeavesOutACallOfItsTensorParallelPair) {
  // Steps of four pairs: three all-reduces of the pair, one of all. In the third, rank 5 leaves out the last of its
  // pair.
  auto step = grid(4, 2);
  for (Recording& each : step) {
    const std::uint32_t calls_of_pair = each.rank == 5 ? 8 : 9;
    for (std::uint32_t i = 0; i < calls_of_pair; ++i) {
      if (i == 3 || i == 6) each = calling(each, calls::Operation::allreduce, 0, -1, State::completed);
      each = calling(each, calls::Operation::allreduce, 1, -1,
                     each.rank == 4 && i == 8 ? State::started : State::completed);
    }
    if (each.rank != 4) each = calling(each, calls::Operation::allreduce, 0);
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(
      sentence(*diagnosis, 60),
      "allreduce #9 (1024 float32, 4 KiB) of group 'row': rank 5 (local 1) on node2 has not called it for 60 s; 7 "
      "ranks wait");
}

/// DDP of two ranks: each step two broadcasts of BatchNorm's buffers and an all-reduce. In the fourth, rank 0 evaluates
/// alone: the broadcasts of its forward passes are under way where rank 1 is in the all-reduce.
TEST(HangDiagnosis, BlamesTheRankThatEvaluatesAloneAtTheFirstCallThatDiffers) {
  std::vector<Recording> step = {traced_rank(0), traced_rank(1)};
  for (Recording& each : step) {
    each.size = 2;
    each.communicators = {{0, 1, each.rank, 2, 0, 0, false, "world", MemberRanks::row(0, 1, 2)}};
    for (int i = 0; i < 11; ++i) {
      const bool is_reduction = i % 3 == 2;
      each = calling(each, is_reduction ? calls::Operation::allreduce : calls::Operation::broadcast, 0,
                     is_reduction ? -1 : 0, State::completed);
    }
  }
  for (int i = 0; i < 2; ++i) step[0] = calling(step[0], calls::Operation::broadcast, 0, 0);
  step[1] = calling(step[1], calls::Operation::allreduce);
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(sentence(*diagnosis, 60),
            "allreduce #12 (1024 float32, 4 KiB): rank 0 (local 0) on node0 called broadcast #12 (1024 float32, 4 KiB) "
            "instead; 1 rank waits");
}

TEST(HangDiagnosis, TellsFunctionsApartThatShareAnOperation) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(calling(traced_rank(rank), recorder_format::other::file_io));
    step.back().calls.back().bytes = 0;
    step.back().calls.back().tag =
        rank == 2 ? function_number("MPI_File_close") : function_number("MPI_File_write_at_all");
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(sentence(*diagnosis, 60),
            "MPI_File_write_at_all #1: rank 2 (local 0) on node1 called MPI_File_close #1 instead; 3 ranks wait");
}

TEST(HangDiagnosis, ShowsBothCallsWhereNothingTellsWhichIsWrong) {
  const std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::barrier),
                                       calling(traced_rank(1), calls::Operation::broadcast, 0, 0)};
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(
      sentence(*diagnosis, 60),
      "call #1: rank 0 on node0 called barrier #1, rank 1 on node0 called broadcast #1 (1024 float32, 4 KiB) with "
      "root 0; nothing recorded tells which of them is wrong");
}

TEST(HangDiagnosis, BlamesTheDeadRankAndNotThoseThatDiedWaitingForIt) {
  // Rank 1 died in no call; rank 0 died while it waited for rank 1, and ranks 2 and 3 wait for rank 0.
  std::vector<Recording> step = {calling(traced_rank(0), calls::Operation::recv, 0, 1), traced_rank(1),
                                 calling(traced_rank(2), calls::Operation::recv, 0, 0),
                                 calling(traced_rank(3), calls::Operation::recv, 0, 0)};
  step[0].writer = step[1].writer = Writer::gone;
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(diagnosis->kind, Kind::dead);
  ASSERT_EQ(diagnosis->stall.missing.size(), 1U);
  EXPECT_EQ(diagnosis->stall.missing[0].rank, 1U);
}

TEST(HangDiagnosis, BlamesTheSenderOfAMessageTooMany) {
  // In the third of five rounds rank 0 sends twice; its last message finds nobody.
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording own = traced_rank(rank);
    for (int round = 0; round < 5; ++round) {
      own = calling(own, calls::Operation::allreduce, 0, -1, State::completed);
      if (rank == 0) own = calling(own, calls::Operation::send, 0, 1, round == 4 ? State::started : State::completed);
      if (rank == 0 && round == 2) own = calling(own, calls::Operation::send, 0, 1, State::completed);
      if (rank == 1) own = calling(own, calls::Operation::recv, 0, 0, State::completed);
    }
    step.push_back(rank == 0 ? own : calling(own, calls::Operation::finalize));
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(sentence(*diagnosis, 9),
            "send (1024 float32, 4 KiB) to rank 1: rank 0 (local 0) on node0 is alone in it for 9 s: the others have "
            "ended without it; 3 ranks wait");
}

TEST(HangDiagnosis, BlamesTheRankThatMakesACallThatTheOthersHaveEndedWithout) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(calling(traced_rank(rank), calls::Operation::barrier, 0, -1, State::completed));
    if (rank == 2) step.back() = calling(step.back(), calls::Operation::barrier);
    if (rank == 2) continue;
    step.back().writer = Writer::gone;
    step.back().ending = recorder_format::Ending::well;
  }
  const auto diagnosis = diagnose_hang(step);
  ASSERT_TRUE(diagnosis);
  EXPECT_EQ(sentence(*diagnosis, 9),
            "barrier #2: rank 2 (local 0) on node1 is alone in it for 9 s: the others have ended without it");
}

/// A rank of libamldist that has made so many rounds of two calls on its group, that of the even ranks or of the odd
/// ones, and has exited with status 0.
Recording exited_after(std::uint32_t rank, std::size_t rounds) {
  Recording own = traced_rank(rank);
  own.source = "amldist";
  own.communicators[1] = {1, 2 + rank % 2, rank / 2, 2, 0, 0, false, "pair", MemberRanks::row(rank % 2, 2, 2)};
  for (std::size_t i = 0; i < rounds; ++i) {
    for (const auto operation : {calls::Operation::allreduce, calls::Operation::allgather})
      own = calling(own, operation, 1, -1, State::completed);
  }
  own.writer = Writer::gone;
  own.has_exited = true;
  return own;
}

TEST(HangDiagnosis, OfTwoBlamesWhoeverHasMadeAnotherNumberOfRoundsThanTheRest) {
  Recording waits = calling(exited_after(0, 6), calls::Operation::allreduce, 1, -1, State::failed);
  waits.has_exited = false;
  const auto blamed = [&](std::size_t rounds, std::size_t of_others) {
    const std::vector<Recording> step = {waits, exited_after(1, of_others), exited_after(2, rounds),
                                         exited_after(3, of_others)};
    const auto diagnosis = diagnose_hang(step);
    EXPECT_TRUE(diagnosis && diagnosis->is_decided() && diagnosis->stall.missing.size() == 1);
    return diagnosis ? diagnosis->stall.missing.front().rank : 99;
  };
  EXPECT_EQ(blamed(6, 6), 0U) << "it has made one too many";
  EXPECT_EQ(blamed(6, 8), 2U) << "it has left early";
  std::vector<Recording> two = {waits, exited_after(2, 6)};
  EXPECT_TRUE(diagnose_hang(two)->is_decided()) << "of all it alone has exited";
  two.back().ending = recorder_format::Ending::well;
  EXPECT_FALSE(diagnose_hang(two)->is_decided());
}

/// Of two in a circle, one is in MPI_Finalize.
TEST(HangDiagnosis, OfTwoThatWaitForEachOtherBlamesWhoeverHasMadeAnotherNumberOfRounds) {
  const auto blamed = [&](std::size_t waiting, std::size_t rounds) {
    std::vector<Recording> step;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Recording own = exited_after(rank, rank == 0 ? waiting : rank == 2 ? rounds : 6);
      own.source = "mpi";
      own.writer = Writer::runs;
      own.has_exited = false;
      step.push_back(rank == 0 ? calling(own, calls::Operation::allreduce, 1)
                               : calling(own, calls::Operation::finalize));
    }
    const auto diagnosis = diagnose_hang(step);
    EXPECT_TRUE(diagnosis && diagnosis->is_decided() && diagnosis->stall.missing.size() == 1);
    return diagnosis ? diagnosis->stall.missing.front().rank : 99;
  };
  EXPECT_EQ(blamed(6, 6), 0U);
  EXPECT_EQ(blamed(5, 5), 2U);
}

}  // namespace
}  // namespace amldist::trace::hang_diagnosis_test
