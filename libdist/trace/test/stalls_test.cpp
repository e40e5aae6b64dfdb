// Who keeps whom waiting, on recordings made up by hand.
#include "trace/diagnosis/stalls.hpp"

#include "calls/call.hpp"
#include "calls/call_text.hpp"

#include "support.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::expect_sentence;
using recorder_format::State;
using Why = MissingRank::Why;

constexpr std::int64_t start = 1'700'000'000'000'000'000;

/// A rank that has ended `completed` allreduces on one communicator.
Recording rank_with(std::uint32_t rank, std::uint32_t size, std::uint64_t completed) {
  Recording recording;
  recording.rank = rank;
  recording.size = size;
  recording.host = "node" + std::to_string(rank / 2);
  recording.writer = Writer::runs;
  recording.communicators.push_back({0, 1, rank, size, completed, completed, false, ""});
  for (std::uint64_t i = 1; i <= completed; ++i) {
    CallRecord call;
    call.ticket = call.sequence = i;
    call.bytes = 4096;
    call.type = calls::DataType::float32;
    call.operation = calls::Operation::allreduce;
    call.state = State::completed;
    call.enqueued_ns = call.started_ns = start + static_cast<std::int64_t>(i) * 1000;
    call.ended_ns = call.started_ns + 500;
    recording.calls.push_back(call);
  }
  return recording;
}

/// Lets it begin the next call.
Recording in_call(Recording recording, calls::Operation operation = calls::Operation::allreduce,
                  std::uint64_t bytes = 4096) {
  CallRecord call;
  call.ticket = recording.calls.size() + 1;
  call.sequence = ++recording.communicators[0].entered;
  call.bytes = bytes;
  call.type = calls::DataType::float32;
  call.operation = operation;
  call.state = State::started;
  call.enqueued_ns = call.started_ns = start + 1'000'000;
  recording.calls.push_back(call);
  return recording;
}

Recording with(Recording recording, Writer writer) {
  recording.writer = writer;
  return recording;
}

TEST(Stalls, OfPyTorchAreAboutTheCallThatOneHasNotMade) {
  // The hooks of a stopped process have not seen the end of its call 5, which the others have left.
  std::vector<Recording> step = {in_call(rank_with(0, 3, 5)), with(in_call(rank_with(1, 3, 4)), Writer::stopped),
                                 in_call(rank_with(2, 3, 5))};
  for (Recording& each : step) each.source = "torch";
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].call.sequence, 6U);
  EXPECT_EQ(stalls[0].waiting, (std::vector<std::uint32_t>{0, 2}));
  ASSERT_EQ(stalls[0].missing.size(), 1U);
  EXPECT_EQ(stalls[0].missing[0].rank, 1U);
  EXPECT_EQ(stalls[0].missing[0].why, MissingRank::Why::stopped);
}

/// The end of NCCL's calls is not recorded, so rank 1's broadcast on the pair stays open; it has ended, as the
/// program's order shows.
TEST(Stalls, OfNcclAreAboutTheCallThatAStoppedRankHasNotMade) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Recording recording = rank_with(rank, 2, 5);
    recording.source = "nccl";
    recording.communicators.push_back({1, 0, rank, 2, 1, 1, false, "pair"});  // whose id comes first
    CallRecord call = recording.calls.back();
    call.ticket = 6;
    call.sequence = call.communicator = 1;
    call.operation = calls::Operation::broadcast;
    call.state = State::started;
    recording.calls.push_back(call);
    step.push_back(std::move(recording));
  }
  step[1].writer = Writer::stopped;
  auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U) << "nothing more is known: rank 1 may be in it";
  EXPECT_EQ(stalls[0].call.operation, calls::Operation::broadcast);

  step[0] = in_call(step[0]);
  stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].call.operation, calls::Operation::allreduce);
  EXPECT_EQ(stalls[0].missing.at(0).rank, 1U);
  EXPECT_NE(sentence(stalls[0]).find("is stopped after allreduce #5"), std::string::npos) << sentence(stalls[0]);
}

TEST(Stalls, NamesTheRankThatNeverCalled) {
  const std::vector<Recording> step = {in_call(rank_with(0, 3, 4)), rank_with(1, 3, 4), in_call(rank_with(2, 3, 4))};
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].call.sequence, 5U);
  EXPECT_EQ(stalls[0].waiting, (std::vector<std::uint32_t>{0, 2}));
  ASSERT_EQ(stalls[0].missing.size(), 1U);
  EXPECT_EQ(stalls[0].missing[0].rank, 1U);
  EXPECT_EQ(stalls[0].missing[0].why, Why::never_called);
  EXPECT_EQ(stalls[0].since_ns, start + 1'000'000);
  EXPECT_EQ(sentence(stalls[0]),
            "allreduce #5 (1024 float32, 4 KiB): rank 1 (local 0) on node0 has not called it; 2 ranks wait");
}

TEST(Stalls, NameTheRankThatHasNotEvenTheCommunicatorOfTheFirstCall) {
  // A persistent call that rank 1 has not prepared, with a communicator for its starts alone.
  const auto started = [](Recording recording, std::uint64_t completed) {
    recording.communicators.push_back({1, 77, recording.rank, 3, completed + 1, completed, false, "persistent", {}});
    recording.communicators.back().world_ranks = MemberRanks::row(0, 1, 3);
    CallRecord call = recording.calls.back();
    ++call.ticket;
    call.communicator = 1;
    call.sequence = completed + 1;
    call.state = State::started;
    recording.calls.push_back(call);
    return recording;
  };
  const auto why = [&](std::uint64_t completed) {
    const auto stalls = find_stalls(std::vector<Recording>{started(rank_with(0, 3, 4), completed), rank_with(1, 3, 4),
                                                           started(rank_with(2, 3, 4), completed)});
    return stalls.size() == 1 && stalls[0].missing.size() == 1 && stalls[0].missing[0].rank == 1
               ? std::optional(stalls[0].missing[0].why)
               : std::nullopt;
  };
  EXPECT_EQ(why(0), Why::never_called);
  EXPECT_EQ(why(1), Why::no_recorder) << "it had one when the first call ended: nothing is known about it";
}

TEST(Stalls, NamesTheDeadAndTheStopped) {
  const auto waiting = in_call(rank_with(0, 2, 4));
  for (const auto& [writer, why] : {std::pair{Writer::gone, Why::gone}, std::pair{Writer::stopped, Why::stopped}}) {
    for (const Recording& culprit : {rank_with(1, 2, 4), in_call(rank_with(1, 2, 4))}) {
      const std::vector<Recording> step = {waiting, with(culprit, writer)};
      const auto stalls = find_stalls(step);
      ASSERT_EQ(stalls.size(), 1U);
      ASSERT_EQ(stalls[0].missing.size(), 1U);
      EXPECT_EQ(stalls[0].missing[0].rank, 1U);
      EXPECT_EQ(stalls[0].missing[0].why, why);
      expect_sentence(sentence(stalls[0]));
    }
  }
}

TEST(Stalls, NamesTheLateOneInTheOldestCall) {
  const std::vector<Recording> step = {in_call(rank_with(0, 3, 5)), in_call(rank_with(1, 3, 5)),
                                       in_call(rank_with(2, 3, 4))};
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].call.sequence, 5U);
  EXPECT_EQ(stalls[0].missing.at(0).rank, 2U);
  EXPECT_EQ(stalls[0].missing.at(0).why, Why::slow);
}

TEST(Stalls, NamesTheMinorityThatCalledSomethingElse) {
  const std::vector<Recording> operations = {in_call(rank_with(0, 3, 4)),
                                             in_call(rank_with(1, 3, 4), calls::Operation::barrier, 0),
                                             in_call(rank_with(2, 3, 4))};
  const std::vector<Recording> sizes = {in_call(rank_with(0, 3, 4), calls::Operation::allreduce, 8192),
                                        in_call(rank_with(1, 3, 4)), in_call(rank_with(2, 3, 4))};
  EXPECT_EQ(sentence(find_stalls(operations).at(0)),
            "allreduce #5 (1024 float32, 4 KiB): rank 1 (local 0) on node0 called barrier #5 instead; 2 ranks wait");
  EXPECT_EQ(sentence(find_stalls(sizes).at(0)),
            "allreduce #5 (1024 float32, 4 KiB): rank 0 (local 0) on node0 called allreduce #5 (2048 float32, 8 KiB) "
            "instead; "
            "2 ranks wait");
}

/// A message from a root that another rank had not named stayed with it, and was too long for its next call: MPI ended
/// it.
TEST(Stalls, NameTheEarlierCallThatDiffersWhereARankHasDiedInALaterOne) {
  std::vector<Recording> step = {rank_with(0, 3, 7), with(in_call(rank_with(1, 3, 6)), Writer::gone),
                                 rank_with(2, 3, 7)};
  for (Recording& each : step) {
    each.calls[5].operation = calls::Operation::broadcast;
    each.calls[5].peer = each.rank == 2 ? 2 : 0;
    each.source = "mpi";
  }
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].call.sequence, 6U);
  ASSERT_EQ(stalls[0].missing.size(), 1U);
  EXPECT_EQ(stalls[0].missing[0].rank, 2U);
  EXPECT_EQ(stalls[0].missing[0].why, Why::differs);
  for (Recording& each : step) each.calls[5].peer = 0;
  EXPECT_EQ(find_stalls(step).at(0).missing.at(0).rank, 1U) << "which has just died";
}

TEST(Stalls, NamesRanksWithoutARecorder) {
  const std::vector<Recording> step = {in_call(rank_with(0, 4, 4)), in_call(rank_with(3, 4, 4))};
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  ASSERT_EQ(stalls[0].missing.size(), 2U);
  EXPECT_EQ(stalls[0].missing[0].rank, 1U);
  EXPECT_EQ(stalls[0].missing[1].rank, 2U);
  EXPECT_EQ(stalls[0].missing[1].why, Why::no_recorder);
  EXPECT_EQ(sentence(stalls[0]), "allreduce #5 (1024 float32, 4 KiB): ranks 1,2 have no recorder; 2 ranks wait");
}

TEST(Stalls, FindsNoneWhileAllWorkTogether) {
  EXPECT_TRUE(find_stalls({}).empty());
  const std::vector<Recording> idle = {rank_with(0, 2, 4), rank_with(1, 2, 4)};
  const std::vector<Recording> busy = {in_call(rank_with(0, 2, 4)), in_call(rank_with(1, 2, 4))};
  EXPECT_TRUE(find_stalls(idle).empty());
  EXPECT_TRUE(find_stalls(busy).empty());
}

TEST(Stalls, NamesNobodyWhenAllDiedTogether) {
  const std::vector<Recording> step = {with(in_call(rank_with(0, 2, 4)), Writer::gone),
                                       with(in_call(rank_with(1, 2, 4)), Writer::gone)};
  EXPECT_TRUE(find_stalls(step).empty());
}

TEST(Stalls, NamesTheMissingOneAfterAllDied) {
  const std::vector<Recording> step = {with(in_call(rank_with(0, 2, 4)), Writer::gone),
                                       with(rank_with(1, 2, 4), Writer::gone)};
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].missing.at(0).rank, 1U);
}

TEST(Stalls, NamesThePartnerOfAMessage) {
  auto receiver = rank_with(0, 2, 4);
  CallRecord receive;
  receive.ticket = 5;
  receive.operation = calls::Operation::recv;
  receive.peer = 1;
  receive.bytes = 100;
  receive.state = State::started;
  receive.enqueued_ns = start;
  receiver.calls.push_back(receive);
  const std::vector<Recording> step = {receiver, rank_with(1, 2, 4)};
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].waiting, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(stalls[0].missing.at(0).rank, 1U);
  EXPECT_TRUE(sentence(stalls[0]).starts_with("recv (100 uint8, 100 bytes) from rank 1: ")) << sentence(stalls[0]);
}

/// Rank 0 waits for a message of rank 1.
Recording waits_for_message(Recording recording) {
  CallRecord receive;
  receive.ticket = recording.calls.size() + 1;
  receive.operation = calls::Operation::recv;
  receive.peer = 1;
  receive.state = State::started;
  recording.calls.push_back(receive);
  return recording;
}

TEST(Stalls, CountNoMessageOfAClosedCommunicator) {
  auto left = waits_for_message(rank_with(0, 2, 4));
  auto partner = rank_with(1, 2, 4);
  left.communicators[0].closed = true;
  EXPECT_TRUE(find_stalls(std::vector{left, partner}).empty());
  partner.communicators[0].closed = true;
  EXPECT_TRUE(find_stalls(std::vector{left, partner}).empty()) << "nobody has the communicator any more";
}

TEST(Stalls, NamesAPartnerThatHasClosedTheCommunicator) {
  auto partner = rank_with(1, 2, 4);
  partner.communicators[0].closed = true;
  const auto stalls = find_stalls(std::vector{waits_for_message(rank_with(0, 2, 4)), partner});
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].missing.at(0).rank, 1U);
  EXPECT_EQ(stalls[0].missing.at(0).why, Why::never_called) << "its recorder is here";
}

TEST(Stalls, JudgesEachCommunicatorByItself) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    Recording recording = rank_with(rank, 4, 3);
    recording.communicators.push_back({1, 100 + rank / 2, rank % 2, 2, 0, 0, false, "pair"});
    if (rank == 2) {
      recording.communicators[1].entered = 1;
      CallRecord call;
      call.ticket = 4;
      call.sequence = 1;
      call.communicator = 1;
      call.operation = calls::Operation::barrier;
      call.state = State::started;
      call.started_ns = start;
      recording.calls.push_back(call);
    }
    step.push_back(std::move(recording));
  }
  const auto stalls = find_stalls(step);
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].communicator, 101U);
  EXPECT_EQ(stalls[0].communicator_name, "pair");
  EXPECT_EQ(stalls[0].missing.at(0).rank, 3U);
  EXPECT_EQ(stalls[0].waiting, (std::vector<std::uint32_t>{2}));
}

/// One wording: what a program's own error says, `aml-dist trace` says too.
TEST(Stalls, DescribeACallAsLiveErrorsDo) {
  CallRecord recorded;
  recorded.sequence = 17;
  recorded.type = calls::DataType::float64;
  recorded.bytes = 3 << 20;
  calls::Call live;
  live.sequence = 17;
  live.type = calls::DataType::float64;
  live.count = (3 << 20) / 8;
  for (const calls::Operation operation :
       {calls::Operation::allreduce, calls::Operation::recv, calls::Operation::alltoallv, calls::Operation::barrier,
        calls::Operation::split, calls::Operation::finalize, calls::Operation::init}) {
    recorded.operation = live.operation = operation;
    EXPECT_EQ(describe_call(recorded), describe(live));
  }
  recorded.bytes = live.count = 0;
  recorded.operation = live.operation = calls::Operation::broadcast;
  EXPECT_EQ(describe_call(recorded), describe(live));
  EXPECT_EQ(describe(live), "broadcast #17 (0 float64)");
}

TEST(Stalls, DescribeNumbersThatNoCallHas) {
  CallRecord call;
  call.operation = calls::Operation{200};
  call.type = calls::DataType{200};
  call.bytes = ~std::uint64_t{0};
  EXPECT_EQ(describe_call(call), "unknown (18446744073709551615 bytes)");
  EXPECT_EQ(describe(calls::CallNumbers{calls::Operation::send, 1, ~std::uint64_t{0}, calls::DataType::float64}),
            "send #1 (18446744073709551615 float64)");
}

TEST(Stalls, SaysBytesAndRanksShortly) {
  EXPECT_EQ(calls::describe_bytes(0), "0 bytes");
  EXPECT_EQ(calls::describe_bytes(300), "300 bytes");
  EXPECT_EQ(calls::describe_bytes(640 << 10), "640 KiB");
  EXPECT_EQ(calls::describe_bytes(std::uint64_t{3} << 30), "3 GiB");
  EXPECT_EQ(compress_ranks(std::vector<std::uint32_t>{}), "");
  EXPECT_EQ(compress_ranks(std::vector<std::uint32_t>{4}), "4");
  EXPECT_EQ(compress_ranks(std::vector<std::uint32_t>{0, 1, 3, 4, 5, 9}), "0,1,3-5,9");
}

}  // namespace
}  // namespace amldist::trace
