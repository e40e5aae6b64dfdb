// Parts of a communicator that work without other ranks.
#include <gtest/gtest.h>

#include "collective/communicator/refused_calls.hpp"
#include "collective/communicator/split_requests.hpp"

namespace {

using namespace amldist::collective;
using amldist::Errc;
using amldist::Error;

// ---- split ----
TEST(SplitRequests, TravelAsText) {
  for (const SplitRequest request : {SplitRequest{0, 0}, SplitRequest{-1, 7}, SplitRequest{INT32_MAX, INT32_MIN}}) {
    const auto read = parse_split_request(to_string(request));
    EXPECT_EQ(read.color, request.color);
    EXPECT_EQ(read.key, request.key);
  }
}

TEST(SplitRequests, OrderRanksByKeyAndThenByRank) {
  const std::vector<SplitRequest> requests = {{1, 5}, {0, 0}, {1, -2}, {1, 5}, {-1, 0}};
  EXPECT_EQ(ranks_of_color(requests, 1), (std::vector<std::uint32_t>{2, 0, 3}));
  EXPECT_EQ(ranks_of_color(requests, 0), (std::vector<std::uint32_t>{1}));
}

TEST(SplitRequests, GiveEachCommunicatorANumberOfItsOwn) {
  EXPECT_EQ(split_id(7, 1, 0), split_id(7, 1, 0));
  EXPECT_NE(split_id(7, 1, 0), split_id(7, 1, 1));
  EXPECT_NE(split_id(7, 1, 0), split_id(7, 2, 0));
  EXPECT_NE(split_id(7, 1, 0), split_id(8, 1, 0));
}

// ---- sequence numbers ----
Call call_of(Operation operation, int root = 0) {
  Call call;
  call.operation = operation;
  call.root = root;
  return call;
}

TEST(SequenceNumbers, CountCollectivesAndMessagesApart) {
  SequenceNumbers numbers(3);
  EXPECT_EQ(numbers.next(call_of(Operation::barrier), false), 1U);
  EXPECT_EQ(numbers.next(call_of(Operation::send, 2), false), 1U);
  EXPECT_EQ(numbers.next(call_of(Operation::recv, 1), false), 2U);
  EXPECT_EQ(numbers.next(call_of(Operation::allreduce), false), 2U);
  EXPECT_EQ(numbers.next(call_of(Operation::send, 2), true), 3U);  // on a device: not tallied
  EXPECT_EQ(numbers.peek(call_of(Operation::barrier)), 3U);
  EXPECT_EQ(numbers.peek(call_of(Operation::send)), 4U);
  EXPECT_EQ(std::vector(numbers.sent().begin(), numbers.sent().end()), (std::vector<std::uint64_t>{0, 0, 1}));
  EXPECT_EQ(numbers.received(), 1U);
}

// ---- observers ----
struct Seen : CallObserver {
  [[nodiscard]] Ticket begin(const Call& call, std::uint64_t /*began*/) override {
    begun.push_back(call.sequence);
    return begun.size();
  }
  void complete(Ticket ticket) override { completed.push_back(ticket); }
  void fail(Ticket ticket, const Error& error) override {
    failed.push_back(ticket);
    why = error.message;
  }
  std::vector<std::uint64_t> begun;
  std::vector<Ticket> completed;
  std::vector<Ticket> failed;
  std::string why;
};

TEST(RefusedCalls, TellTheObserverOfTheFirstOnly) {
  ControlChannel channel(single_process_world("node"), false);
  CommContext context(channel, std::make_shared<CommWatch>(1, std::vector<std::uint32_t>{0}, 0), milliseconds(1000));
  SequenceNumbers numbers(1);
  static_cast<void>(numbers.next(call_of(Operation::barrier), false));
  Seen seen;
  RefusedCalls refused(context, numbers, seen);
  context.watch().give_verdict({Errc::peer, "rank 3 has ended"});
  for (int i = 0; i < 2; ++i) {
    const Error refusal = refused.refuse(call_of(Operation::allreduce), 0);
    EXPECT_EQ(refusal.code, Errc::aborted);
    EXPECT_EQ(refusal.message, "rank 3 has ended");
  }
  EXPECT_EQ(seen.begun, std::vector<std::uint64_t>{2});  // the number that it would have had
  EXPECT_EQ(seen.failed, std::vector<CallObserver::Ticket>{1});
  EXPECT_EQ(seen.why, "rank 3 has ended");
  EXPECT_TRUE(seen.completed.empty());
}

}  // namespace
