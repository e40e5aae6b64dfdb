#include "trace/diagnosis/unreceived.hpp"

#include <gtest/gtest.h>

namespace amldist::trace::unreceived_test {
namespace {

using calls::Operation;
using recorder_format::State;

Recording rank_of_two(std::uint32_t rank) {
  Recording recording;
  recording.rank = rank;
  recording.size = 2;
  recording.source = "mpi";
  recording.communicators.push_back({0, 1, rank, 2, 0, 0, false, "world", MemberRanks::row(0, 1, 2)});
  return recording;
}

void add(Recording& recording, Operation operation, std::int32_t peer, std::uint16_t tag, State state) {
  CallRecord call;
  call.ticket = ++recording.recorded;
  call.operation = operation;
  call.peer = peer;
  call.tag = tag;
  call.state = state;
  recording.calls.push_back(call);
}

TEST(UnreceivedMessages, AreCountedByTagThoughTheirSendHasEnded) {
  std::vector<Recording> step = {rank_of_two(0), rank_of_two(1)};
  for (int i = 0; i < 3; ++i) add(step[0], Operation::send, 1, 7, State::completed);
  add(step[0], Operation::send, 1, 8, State::started);
  add(step[1], Operation::recv, 0, 7, State::completed);
  add(step[1], Operation::recv, 0, 9, State::started);
  const auto found = find_unreceived(step);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(describe(found[0]), "2 messages from rank 0 to rank 1 with tag 7");
  EXPECT_EQ(describe(found[1]), "1 message from rank 0 to rank 1 with tag 8");
}

TEST(UnreceivedMessages, AreUnknownWhereTheReceiverTakesAnyOrHasForgotten) {
  std::vector<Recording> any = {rank_of_two(0), rank_of_two(1)};
  add(any[0], Operation::send, 1, 7, State::completed);
  auto forgotten = any;
  add(any[1], Operation::recv, recorder_format::any_peer, 7, State::completed);
  forgotten[1].recorded = 100;
  EXPECT_TRUE(find_unreceived(any).empty());
  EXPECT_TRUE(find_unreceived(forgotten).empty());
  EXPECT_TRUE(find_unreceived(std::vector{any[0]}).empty()) << "and where it has no recorder";
}

TEST(UnreceivedMessages, HostilePeersAndTagsAreSurvived) {
  std::vector<Recording> step = {rank_of_two(0), rank_of_two(1)};
  add(step[0], Operation::send, 77, 7, State::completed);
  add(step[0], Operation::send, -5, 7, State::completed);
  step[0].calls.back().communicator = 12345;
  EXPECT_TRUE(find_unreceived(step).empty());
}

}  // namespace
}  // namespace amldist::trace::unreceived_test
