// The lines of a rank's state that tell whose call is wrong, and in which order it has made its calls.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/time/calendar_time.hpp"
#include "step/messages/rank_state.hpp"
#include "trace/diagnosis/habit.hpp"

namespace amldist::step::rank_state_lines_test {
namespace {

using calls::Operation;
using trace::CallRecord;
using trace::CommonOrder;
using trace::MemberRanks;
using trace::Recording;
using trace::Writer;
using trace::recorder_format::State;

/// A rank of six on libamldist that is gone. Its calls of all members are reduced and gathered by turns.
Recording failed_rank(std::uint32_t rank, std::uint64_t calls = 1) {
  Recording recording;
  recording.rank = rank;
  recording.size = 6;
  recording.host = "node1";
  recording.source = "amldist";
  recording.writer = Writer::gone;
  recording.communicators.push_back({0, 77, rank, 6, calls, 0, false, "world", MemberRanks::row(0, 1, 6)});
  for (std::uint64_t number = 1; number <= calls; ++number) {
    CallRecord call;
    call.ticket = call.sequence = number;
    call.operation = number % 2 == 0 ? Operation::allgather : Operation::allreduce;
    call.bytes = 1024;
    call.started_ns = call.ended_ns = calendar_ns();
    call.state = State::completed;
    recording.calls.push_back(call);
  }
  return recording;
}

Recording heard_from(const Recording& told) {
  const std::int64_t now = calendar_ns();
  return *parse_rank_state(to_rank_state(told, now), told.size, now);
}

TEST(RankState, TellsOfARankThatIsGoneWhoseCallIsWrong) {
  const std::int64_t now = calendar_ns();
  Recording told = failed_rank(2);
  told.note = "broadcast #1: rank 3\n called it with root 1";
  told.wrong = {3};
  const std::string text = to_rank_state(told, now);
  const auto heard = parse_rank_state(text, 6, now);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->wrong, told.wrong);
  EXPECT_EQ(heard->note, "broadcast #1: rank 3\\x0a called it with root 1");
  for (const auto& [from, to] : {std::pair("gone", "runs"),
                                 {"amldist", "mpi"},
                                 {"wrong 3", "wrong 6"},
                                 {"wrong 3", "wrong -1"},
                                 {"comm ", "wrong 3 once more\ncomm "}}) {
    std::string bad = text;
    EXPECT_FALSE(parse_rank_state(bad.replace(bad.find(from), std::string(from).size(), to), 6, now)) << bad;
  }
  told.wrong.emplace();
  EXPECT_EQ(parse_rank_state(to_rank_state(told, now), 6, now)->wrong, told.wrong);
  told.note = std::string(511, 'x');
  EXPECT_TRUE(parse_rank_state(to_rank_state(told, now), 6, now)->note.ends_with("xxx...")) << "cut";
  told.writer = Writer::runs;
  EXPECT_FALSE(parse_rank_state(to_rank_state(told, now), 6, now)->wrong);
}

TEST(RankState, TellsMoreOfTheOrderOfItsCallsThanOfTheCalls) {
  const Recording told = failed_rank(0, 100);
  const Recording heard = heard_from(told);
  ASSERT_TRUE(heard.told_order);
  EXPECT_EQ(heard.told_order, trace::order_of(told, heard.told_order->calls.size()));
  EXPECT_GT(heard.told_order->calls.size(), 50U);
  EXPECT_LT(heard.calls.size(), 10U);
  const std::string text = to_rank_state(failed_rank(0, 2), calendar_ns());
  EXPECT_NE(text.find("\norder 2 "), std::string::npos);
  for (const char* const bad : {"order 2 a\n", "order 2 abcd\n", "order 1 abcdef\n", "order 2 ab!\n", "order 2 \n",
                                "order -1 abc\n", "order 2 abc def\n", "order 2 abc\norder 2 abc\n"})
    EXPECT_FALSE(parse_rank_state(text.substr(0, text.find("order ")) + bad, 6, calendar_ns())) << bad;
}

TEST(RankState, TellsWhoHasLeftTheOrderOfMostThoughTheOthersAreFarAhead) {
  Recording wrong = failed_rank(5, 9);
  std::swap(wrong.calls[7].operation, wrong.calls[8].operation);
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 5; ++rank) step.push_back(heard_from(failed_rank(rank, rank == 4 ? 9 : 30)));
  step.push_back(heard_from(wrong));
  EXPECT_EQ(common_order(step, step[5], step[5].calls.back()), CommonOrder::left);
  EXPECT_EQ(common_order(step, step[4], step[4].calls.back()), CommonOrder::kept);
  for (Recording& each : step) each.told_order.reset();
  EXPECT_EQ(common_order(step, step[5], step[5].calls.back()), CommonOrder::unknown) << "by the calls alone";
}

TEST(RankState, KnowsNoOrderWhereAGroupIsLeftOut) {
  Recording told = failed_rank(0, 9);
  told.communicators.push_back({1, 78, 0, 2, 5, 5, false, "two", MemberRanks::row(0, 1, 2)});
  std::vector<Recording> step(4, heard_from(told));
  step[0].communicators.pop_back();
  EXPECT_EQ(common_order(step, step[0], step[0].calls.back()), CommonOrder::unknown);
}

}  // namespace
}  // namespace amldist::step::rank_state_lines_test
