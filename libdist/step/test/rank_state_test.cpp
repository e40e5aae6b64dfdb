// What a node tells srun about a rank, and what srun makes of what all nodes tell.
#include "step/messages/rank_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/time/calendar_time.hpp"
#include "jumping_clock.hpp"
#include "step/cause/cause.hpp"
#include "step/messages/control_message.hpp"
#include "step/server/hang_detector.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"

namespace amldist::step {
namespace {

using calls::DataType;
using calls::Operation;
using std::chrono::seconds;
using trace::CallRecord;
using trace::MemberRanks;
using trace::Recording;
using trace::Writer;
using trace::recorder_format::State;

constexpr std::int64_t ns_per_s = 1'000'000'000;

/// A rank of four that knows the world; `waits` seconds in a barrier, or in no call.
Recording traced_rank(std::uint32_t rank, std::int64_t waits, Writer writer = Writer::runs) {
  Recording recording;
  recording.rank = rank;
  recording.size = 4;
  recording.local_rank = rank % 2;
  recording.host = "node" + std::to_string(rank / 2);
  recording.source = "mpi";
  recording.writer = writer;
  recording.communicators.push_back(
      {0, 77, rank, 4, waits > 0 ? 1U : 0U, 0, false, "world", MemberRanks::row(0, 1, 4)});
  if (waits == 0) return recording;
  CallRecord call;
  call.ticket = call.sequence = 1;
  call.operation = Operation::barrier;
  call.type = DataType{255};
  call.state = State::started;
  call.enqueued_ns = call.started_ns = calendar_ns() - waits * ns_per_s;
  recording.calls.push_back(call);
  return recording;
}

TEST(RankState, IsReadBackAsWritten) {
  const std::int64_t now = calendar_ns();
  Recording told = traced_rank(2, 30);
  told.communicators.push_back({1, 78, 1, 2, 9, 8, false, "ranks 0,2", MemberRanks::row(0, 2, 2)});
  const auto heard = parse_rank_state(to_rank_state(told, now), 4, now);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->rank, 2U);
  EXPECT_EQ(heard->host, "node1");
  EXPECT_EQ(heard->source, "mpi");
  ASSERT_EQ(heard->communicators.size(), 2U);
  EXPECT_EQ(heard->communicators[0].name, "world");
  EXPECT_EQ(heard->communicators[1].name, "ranks 0,2");
  EXPECT_EQ(heard->communicators[1].world_ranks.to_list(), (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(heard->communicators[1].entered, 9U);
  ASSERT_EQ(heard->calls.size(), 1U);
  EXPECT_EQ(heard->calls[0].operation, Operation::barrier);
  EXPECT_NEAR(static_cast<double>(longest_wait_ms(*heard, now)), 30'000, 100);
}

/// Some groups with ten calls of all members each, made in turn.
Recording with_groups(std::uint32_t groups) {
  Recording told = traced_rank(0, 0);
  told.communicators.clear();
  for (std::uint32_t i = 0; i < groups; ++i)
    told.communicators.push_back({i, 1000 + i, 0, 4, 10, 10, false, "group", MemberRanks::row(0, 1, 4)});
  for (std::uint64_t ticket = 1; ticket <= 10 * groups; ++ticket) {
    CallRecord call;
    call.ticket = ticket;
    call.communicator = static_cast<std::uint32_t>((ticket - 1) % groups);
    call.sequence = 1 + (ticket - 1) / groups;
    call.operation = Operation::allreduce;
    call.state = State::completed;
    call.started_ns = call.ended_ns = calendar_ns();
    told.calls.push_back(call);
  }
  return told;
}

TEST(RankState, TellsAShorterPastOfAllGroupsWhereThereIsNoRoomForALongerOne) {
  for (const auto& [groups, past] : {std::pair{2U, 7}, std::pair{5U, 3}, std::pair{8U, 1}}) {
    const auto heard = parse_rank_state(to_rank_state(with_groups(groups), calendar_ns()), 4, calendar_ns());
    ASSERT_TRUE(heard);
    ASSERT_EQ(heard->communicators.size(), groups);
    EXPECT_FALSE(heard->lacks_slots());
    for (std::uint32_t i = 0; i < groups; ++i) {
      EXPECT_GE(std::ranges::count(heard->calls, i, &CallRecord::communicator), past) << groups << " groups";
    }
  }
  const auto heard = parse_rank_state(to_rank_state(with_groups(40), calendar_ns()), 4, calendar_ns());
  EXPECT_TRUE(heard && heard->lacks_slots()) << "that some are left out is told";
}

TEST(RankState, TellsWhereACallWasMade) {
  const std::int64_t now = calendar_ns();
  Recording told = traced_rank(2, 30);
  told.place = "tr\nain.c:42";
  const std::string text = to_rank_state(told, now);
  EXPECT_EQ(parse_rank_state(text, 4, now)->place, "tr?ain.c:42");
  const auto end = text.find('\n') + 1;
  EXPECT_FALSE(parse_rank_state(text.substr(0, end) + "from a\nfrom b\n", 4, now));
  EXPECT_FALSE(parse_rank_state(text.substr(0, end) + "from " + std::string(65, 'a') + "\n", 4, now));
  EXPECT_FALSE(parse_rank_state(text.substr(0, end) + "from \n", 4, now));
}

TEST(RankState, FitsADatagramWhateverTheRankHas) {
  Recording told = traced_rank(0, 5, Writer::gone);
  told.source = "amldist";
  told.note = std::string(511, 'x');
  told.wrong = {3};
  told.totals = trace::ActivityTotals{1LL << 60,  1ULL << 60, 1ULL << 60, 0xffffffff, trace::Obstacle::processor,
                                      1ULL << 60, 0xffffffff};
  told.place = told.host = std::string(64, 'p');
  for (std::uint32_t i = 1; i < 256; ++i) {
    told.communicators.push_back({i, i, 0, 4, i, i, false, std::string(70, 'x'), MemberRanks::row(0, 1, 4)});
  }
  const std::string text = to_rank_state(told, calendar_ns());
  EXPECT_LE(text.size(), longest_rank_state);
  const auto heard = parse_rank_state(text, 4, calendar_ns());
  ASSERT_TRUE(heard);
  ASSERT_GE(heard->communicators.size(), 2U);
  EXPECT_EQ(heard->communicators[0].id, trace::recorder_format::unjudged_id) << "all slots are in use";
  EXPECT_EQ(heard->communicators[1].id, 77U) << "the one that it waits in comes first";
}

TEST(RankState, TellsAWaitOnACommunicatorWithoutASlot) {
  const std::int64_t now = calendar_ns();
  Recording told = traced_rank(0, 30);
  EXPECT_FALSE(parse_rank_state(to_rank_state(told, now), 4, now)->lacks_slots());
  told.calls[0].communicator = trace::recorder_format::no_slot;
  told.calls[0].operation = Operation::recv;
  told.calls[0].peer = 3;
  const auto heard = parse_rank_state(to_rank_state(told, now), 4, now);
  ASSERT_TRUE(heard && heard->unjudged_wait() != nullptr);
  EXPECT_EQ(heard->unjudged_wait()->operation, Operation::recv);
  EXPECT_LT(heard->unjudged_wait()->peer, 0) << "ranks of a communicator that nobody else knows";
  EXPECT_TRUE(heard->lacks_slots());
  told.calls.clear();
  for (std::uint32_t i = 1; i < 256; ++i)
    told.communicators.push_back({i, i, 0, 4, i, i, false, "x", MemberRanks::row(0, 1, 4)});
  EXPECT_TRUE(parse_rank_state(to_rank_state(told, now), 4, now)->lacks_slots());
}

TEST(RankState, RefusesWhatNoNodeWrites) {
  const std::int64_t now = calendar_ns();
  const std::string good = to_rank_state(traced_rank(1, 5), now);
  ASSERT_TRUE(parse_rank_state(good, 4, now));
  for (std::size_t length = 0; length < good.size(); ++length) {
    const std::string cut = good.substr(0, length);
    if (cut.ends_with('\n')) continue;
    EXPECT_FALSE(parse_rank_state(cut, 4, now)) << cut;
  }
  for (const char* const bad :
       {"\n", "rank 4 4 0 runs mpi node1 0\n", "rank 0 4 0 flies mpi node1 0\n", "rank 0 4 0 runs mpi 0\n",
        "rank 0 4 0 runs mpi node1 1001\n", "comm 000000000000004d 0 4 1 0 1 world\n",
        "rank 0 4 0 runs mpi node1 0\ncall 0 13 1 0 0 0 -1 0 2 5 1\n",
        "rank 0 4 0 runs mpi node1 0\ncomm 4d 0 4 1 0 1 world\n",
        "rank 0 4 0 runs mpi node1 0\ncomm 000000000000004d 0 4 1 3 1 world\n",
        "rank 0 4 0 runs mpi node1 0\ncomm 000000000000004d 4 4 1 0 1 world\n", "rank 0 4 0 runs mpi node\033[31m 0\n",
        "rank 0 4 0 runs mpi node1 0\nrank 1 4 0 runs mpi node1 0\n"}) {
    EXPECT_FALSE(parse_rank_state(bad, 4, now)) << bad;
  }
}

TEST(RankState, HasTheCallsInTheirOrder) {
  const std::int64_t now = calendar_ns();
  Recording recording = traced_rank(2, 0, Writer::stopped);
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    CallRecord call;
    call.ticket = call.sequence = sequence;
    call.operation = Operation::barrier;
    call.state = State::completed;
    call.started_ns = now;
    recording.calls.push_back(call);
  }
  recording.communicators[0].entered = 20;
  const auto heard = parse_rank_state(to_rank_state(recording, now), 4, now);
  ASSERT_TRUE(heard && !heard->calls.empty());
  EXPECT_EQ(heard->calls.back().sequence, 20U) << "the newest is what a rank that does not come did last";
  EXPECT_TRUE(std::ranges::is_sorted(heard->calls, {}, &CallRecord::sequence));
}

TEST(RankState, SaysThatAWaitForOneOfManyIsForAnyRank) {
  const std::int64_t now = calendar_ns();
  for (const std::int32_t peers : {3, 40}) {
    Recording told = traced_rank(0, 0);
    for (std::int32_t peer = 1; peer <= peers; ++peer) {
      CallRecord call;
      call.ticket = static_cast<std::uint64_t>(peer);
      call.operation = Operation::recv;
      call.peer = peer;
      call.state = State::started;
      call.enqueued_ns = call.started_ns = now - 5 * ns_per_s;
      told.calls.push_back(call);
    }
    const auto heard = parse_rank_state(to_rank_state(told, now), 4, now);
    ASSERT_TRUE(heard && !heard->calls.empty());
    const bool any = heard->calls.front().peer == trace::recorder_format::any_peer;
    EXPECT_EQ(any, peers == 40);
    EXPECT_EQ(heard->calls.size(), any ? heard->calls.size() : 3U);
  }
}

TEST(RankState, TellsWhatTheProcessHasDone) {
  const std::int64_t now = calendar_ns();
  Recording told = traced_rank(0, 30);
  std::string text;
  for (const auto& [starved_ms, runnable] :
       {std::pair(9'120, 0), std::pair(9'120, 71), std::pair(0, 71), std::pair(0, 0)}) {
    told.totals = trace::ActivityTotals{81'234, 41'000, 7'340'032, 16, trace::Obstacle::file_lock};
    told.totals->starved_ms = static_cast<std::uint64_t>(starved_ms);
    told.totals->runnable = static_cast<std::uint32_t>(runnable);
    text = to_rank_state(told, now);
    const auto heard = parse_rank_state(text, 4, now);
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->totals, told.totals);
  }
  for (const std::string line : {"does 1 2 3 4 9\n", "does 1 2 3 4\n", "does 1 2 3 4 -1\n", "does 1 2 3 4 0 0 0 0\n",
                                 "does 1 2 3 4 0 -1\n", "does 1 2 3 4 0 0 -1\n"})
    EXPECT_FALSE(parse_rank_state("rank 0 4 0 runs mpi node1 0\n" + line, 4, now)) << line;
  EXPECT_FALSE(parse_rank_state(text + "does 1 2 3 4 0\n", 4, now)) << "twice";
}

TEST(RankState, SaysHowLongAgoACallEnded) {
  const std::int64_t now = calendar_ns();
  Recording told = traced_rank(0, 90);
  told.calls.front().state = State::completed;
  told.calls.front().ended_ns = now - 5 * ns_per_s;
  const auto heard = parse_rank_state(to_rank_state(told, now), 4, now);
  ASSERT_TRUE(heard && heard->calls.size() == 1);
  EXPECT_NEAR(static_cast<double>(heard->calls.front().ended_ns), static_cast<double>(now - 5 * ns_per_s), 1e7);
}

TEST(RankState, IsNoLargerThanItsStep) {
  const std::int64_t now = calendar_ns();
  const std::string rank = "rank 0 4 0 runs mpi node1 0\n";
  EXPECT_FALSE(parse_rank_state(rank, 8, now)) << "a rank of another step";
  EXPECT_FALSE(parse_rank_state("rank 0 67108864 0 runs mpi node1 0\n", 4, now)) << "a step of 2^26 tasks";
  EXPECT_FALSE(parse_rank_state(rank + "comm 000000000000004d 0 2147483648 1 0 1 world\n", 4, now)) << "2^31 members";
  EXPECT_FALSE(parse_rank_state(rank + "comm 000000000000004d 0 4 1 1 1 world\n", 4, now)) << "the last is rank 4";
  EXPECT_FALSE(parse_rank_state(rank + "comm 000000000000004d 0 4 1 2 -1 world\n", 4, now)) << "the last is rank -1";
  EXPECT_FALSE(parse_rank_state("rank 0 4 0 runs other node1 0\n", 4, now)) << "nobody else records";
  const auto merged = parse_rank_state(rank + "comm 000000000000004d 0 67108864 1 0 1 spawned\n", 4, now);
  ASSERT_TRUE(merged) << "a program may have spawned others";
  EXPECT_TRUE(merged->communicators[0].world_ranks.empty());
}

TEST(RankState, OfAStepOfManyRanksHasNoListOfThem) {
  constexpr std::uint32_t tasks = 1U << 19;
  std::string text = "rank 0 524288 0 runs mpi node1 0\n";
  for (int i = 0; i < 8; ++i) text += "comm 000000000000004d 0 524288 1 0 1 world\n";
  const auto heard = parse_rank_state(text, tasks, calendar_ns());
  ASSERT_TRUE(heard);
  for (const auto& each : heard->communicators) {
    EXPECT_EQ(each.world_ranks.size(), tasks);
    EXPECT_TRUE(each.world_ranks.is_row()) << "srun keeps one for each rank";
  }
}

/// Lets the detector look once a second at the same states.
std::optional<HangDetector::Hang> judged(HangDetector& detector, const std::vector<Recording>& step, int looks) {
  Clock::time_point now = Clock::now();
  for (int i = 0; i < looks; ++i, now += seconds(1)) {
    std::int64_t longest = 0;
    for (const Recording& each : step) {
      longest = std::max(longest, longest_wait_ms(each, calendar_ns()));
      detector.take_state(to_rank_state(each, calendar_ns()), now);
    }
    const auto wish = detector.take_wait(std::to_string(longest), now);
    if (!wish.stacks.empty()) detector.take_stack("1;process 7\n  thread 7 (solver): state S\n");
    if (auto hang = detector.look(now)) return hang;
  }
  return std::nullopt;
}

TEST(HangDetector, SaysWhatTheNodeTellsOfTheCulprit) {
  const std::string cause = "the kernel killed its process 8123 python (211 GiB) 61 s before, for want of memory";
  const std::string hostile = "1;" + std::string("the kernel\nkilled");
  for (const auto& [text, told] :
       {std::pair{"1;" + cause, cause}, std::pair{"2;" + cause, std::string()}, std::pair{hostile, std::string()},
        std::pair{"4;" + cause, std::string()}, std::pair{"1;" + std::string(longest_cause + 1, 'x'), std::string()}}) {
    HangDetector detector(10, 4);
    std::vector<Recording> step = {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)};
    std::optional<HangDetector::Hang> hang;
    Clock::time_point now = Clock::now();
    for (int i = 0; i < 30 && !hang; ++i, now += seconds(1)) {
      for (const Recording& each : step) detector.take_state(to_rank_state(each, calendar_ns()), now);
      static_cast<void>(detector.take_wait("12000", now));
      static_cast<void>(detector.take(to_datagram(Subject::cause, text, 7), 7, now));
      hang = detector.look(now);
    }
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->cause, told) << text;
  }
}

TEST(HangDetector, NamesTheOneThatHasNotCome) {
  HangDetector detector(10, 4);
  const auto hang =
      judged(detector, {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)}, 30);
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->sentence.starts_with("barrier #1: rank 1 (local 1) on node0 has not called it for 1"))
      << hang->sentence;
  EXPECT_TRUE(hang->sentence.ends_with("; 3 ranks wait")) << hang->sentence;
  EXPECT_NE(hang->report.find("thread 7 (solver)"), std::string::npos);
}

TEST(HangDetector, WaitsForItsTime) {
  HangDetector young(60, 4);
  EXPECT_FALSE(judged(young, {traced_rank(0, 40), traced_rank(1, 0), traced_rank(2, 40), traced_rank(3, 40)}, 20))
      << "forty seconds are no hang of sixty";
  HangDetector resumed(60, 4);
  EXPECT_FALSE(judged(resumed, {traced_rank(0, 500), traced_rank(1, 0), traced_rank(2, 500), traced_rank(3, 500)}, 20))
      << "a step that was suspended shows long waits at once";
}

/// Ranks 0 and 1 are still in a call that the others have left.
std::vector<Recording> slow_to_leave(std::int64_t waits) {
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(traced_rank(rank, waits));
    if (rank < 2) continue;
    step.back().communicators.front().entered = 2;
    step.back().communicators.front().completed = 1;
    step.back().calls.front().sequence = 2;
  }
  return step;
}

TEST(HangDetector, IsPatientWithThoseWhoHaveComeAndAreSlowToLeave) {
  HangDetector short_of_processors(1, 4);
  EXPECT_FALSE(judged(short_of_processors, slow_to_leave(20), 20)) << "nobody has failed to come";
  HangDetector stuck(1, 4);
  const auto hang = judged(stuck, slow_to_leave(40), 60);
  ASSERT_TRUE(hang);
  EXPECT_NE(hang->sentence.find("is still in it for"), std::string::npos) << hang->sentence;
}

TEST(HangDetector, CallsNobodyLateOfWhomItHasHeardNothingSince) {
  HangDetector detector(10, 4);
  Clock::time_point now = Clock::now();
  detector.take_state(to_rank_state(traced_rank(1, 0), calendar_ns()), now);
  for (int i = 0; i < 8; ++i, now += seconds(1)) {
    for (const std::uint32_t rank : {0U, 2U, 3U})
      detector.take_state(to_rank_state(traced_rank(rank, 11), calendar_ns()), now);
    static_cast<void>(detector.take_wait("11000", now));
    EXPECT_FALSE(detector.look(now)) << "rank 1's state is " << i << " s old, and may have changed since";
  }
}

/// srun's time of day is set between what a node tells and srun's look.
TEST(HangDetector, CountsByAClockThatNobodySets) {
  const std::vector<Recording> waits = {traced_rank(0, 3), traced_rank(1, 0), traced_rank(2, 3), traced_rank(3, 3)};
  const std::vector<Recording> hangs = {traced_rank(0, 70), traced_rank(1, 0), traced_rank(2, 70), traced_rank(3, 70)};
  const auto found_in = [](const std::vector<Recording>& step, std::int64_t jump_s) {
    HangDetector detector(60, 4);
    Clock::time_point now = Clock::now();
    bool found = false;
    for (int i = 0; i < 60 && !found; ++i, now += seconds(1)) {
      for (const Recording& each : step) detector.take_state(to_rank_state(each, calendar_ns()), now);
      static_cast<void>(detector.take_wait("60000", now));
      const testing::ClockJump jump(jump_s);
      found = detector.look(now).has_value();
    }
    return found;
  };
  EXPECT_FALSE(found_in(waits, 3600)) << "forward";
  EXPECT_TRUE(found_in(hangs, -3600)) << "back";
}

TEST(HangDetector, LeavesStepsAloneThatMoveOrCompute) {
  HangDetector together(4, 4);
  EXPECT_FALSE(judged(together, {traced_rank(0, 30), traced_rank(1, 30), traced_rank(2, 30), traced_rank(3, 30)}, 30));
  HangDetector computing(4, 4);
  EXPECT_FALSE(judged(computing, {traced_rank(0, 0), traced_rank(1, 0), traced_rank(2, 0), traced_rank(3, 0)}, 30));
  HangDetector suspended(4, 4);
  constexpr auto stopped = Writer::stopped;
  EXPECT_FALSE(judged(suspended, {traced_rank(0, 30, stopped), traced_rank(1, 0, stopped)}, 30));
}

/// Calls that do not block, and a computation beside them. The wait before has made srun look.
TEST(HangDetector, LeavesRanksAloneThatHaveBegunACallAndCompute) {
  HangDetector detector(4, 4);
  ASSERT_FALSE(judged(detector, {traced_rank(0, 3), traced_rank(1, 0), traced_rank(2, 3), traced_rank(3, 3)}, 2));
  std::vector<Recording> step = {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)};
  for (Recording& each : step) {
    for (CallRecord& call : each.calls) call.state = State::enqueued;
  }
  EXPECT_FALSE(judged(detector, step, 30));
  for (CallRecord& call : step[0].calls) call.state = State::started;
  HangDetector another(4, 4);
  EXPECT_TRUE(judged(another, step, 30)) << "one waits";
}

/// What is said in `looks` seconds of a step of which the others have waited for rank 1 for `waits` seconds, while the
/// process of rank 1 does this in each second.
struct Second {
  std::uint64_t cpu_ms = 0;
  std::uint64_t io_bytes = 0;
  trace::Obstacle obstacle = trace::Obstacle::none;
  bool is_debugged = false;
  std::uint32_t runnable = 0;  ///< threads
  bool sleeps_at_times = false;
};
std::vector<std::string> lines_of(HangDetector& detector, std::int64_t waits, std::uint64_t looks, Second does,
                                  seconds since = seconds(0)) {
  std::vector<std::string> lines;
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) step.push_back(traced_rank(rank, rank == 1 ? 0 : waits));
  const Clock::time_point start = Clock::now() + since;
  for (std::uint64_t i = 1; i <= looks; ++i) {
    const Clock::time_point now = start + seconds(i);
    step[1].totals = trace::ActivityTotals{static_cast<std::int64_t>(1000 * i), does.cpu_ms * i, does.io_bytes * i, 3,
                                           does.obstacle};
    step[1].totals->runnable = does.sleeps_at_times && i % 3 == 0 ? 0 : does.runnable;
    for (const Recording& each : step) detector.take_state(to_rank_state(each, calendar_ns()), now);
    static_cast<void>(detector.take_wait(std::to_string(waits * 1000), now));
    if (does.is_debugged) static_cast<void>(detector.take_wait(HangDetector::debugged, now));
    for (const std::string rank : {"0", "1"}) detector.take_stack(rank + ";process 7\n  thread 7: state S\n");
    if (const auto hang = detector.look(now)) lines.push_back((hang->is_busy ? "busy: " : "hang: ") + hang->sentence);
  }
  return lines;
}

TEST(HangDetector, SaysWhatARankDoesInsteadAndGivesItTime) {
  struct Case {
    const char* what;
    std::int64_t waits;
    Second does;
    std::string_view begins;
    std::string_view words;
  };
  constexpr std::uint64_t mb = 1'000'000;
  const Case cases[] = {
      {"asleep", 12, {5}, "hang: ", "has not called it for 12 s; 3 ranks wait"},
      {"computes", 12, {15'800}, "busy: ", "for 12 s: it computes (3 children, 15.8 processors); 3 ranks wait"},
      {"computes for long", 55, {1000}, "hang: ", "for 55 s: it computes (3 children, 1.0 processor); 3 ranks wait"},
      {"reads", 12, {10, 120 * mb}, "busy: ", "for 12 s: it reads and writes (3 children, 120.0 MB/s)"},
      {"file system", 12, {0, 0, trace::Obstacle::file_system}, "busy: ", ": it waits for a file system"},
      {"lock", 12, {0, 0, trace::Obstacle::file_lock}, "busy: ", ": it waits for a lock on a file"},
      {"starves", 12, {.runnable = 6}, "busy: ", ": it waits for a processor"},
      {"polls", 12, {.runnable = 1, .sleeps_at_times = true}, "hang: ", "has not called it for 12 s; 3 ranks wait"},
      {"pager", 500, {0, 0, trace::Obstacle::output}, "busy: ", ": nobody reads its output"},
  };
  for (const Case& each : cases) {
    HangDetector detector(10, 4);
    const auto lines = lines_of(detector, each.waits, 30, each.does);
    ASSERT_EQ(lines.size(), 1U) << each.what;
    EXPECT_TRUE(lines.front().starts_with(each.begins)) << lines.front();
    EXPECT_NE(lines.front().find(each.words), std::string::npos) << lines.front();
  }
  HangDetector longer(10, 4, 20);
  EXPECT_TRUE(lines_of(longer, 55, 30, {1000}).front().starts_with("busy: ")) << "hang_busy=20";
}

TEST(HangDetector, JudgesNothingWhileADebuggerHoldsARank) {
  HangDetector detector(10, 4);
  EXPECT_TRUE(lines_of(detector, 500, 60, {.is_debugged = true}).empty());
  EXPECT_EQ(lines_of(detector, 500, 60, {}, seconds(60)).size(), 1U) << "it is judged anew when the debugger has gone";
}

TEST(HangDetector, SaysOfARankWithoutARecorderWhatItsNodeKnows) {
  const std::pair<Writer, std::string_view> cases[] = {
      {Writer::runs,
       "rank 1 (local 1) on node0 has no recorder: it computes (3 children, 1.0 processor); 3 ranks wait"},
      {Writer::stopped, "rank 1 (local 1) on node0 is stopped for 60 s; 3 ranks wait"},
      {Writer::gone, "rank 1 (local 1) on node0 has ended; 3 ranks wait"},
  };
  for (const auto& [writer, words] : cases) {
    HangDetector detector(10, 4);
    std::optional<HangDetector::Hang> hang;
    const Clock::time_point start = Clock::now();
    for (int i = 1; i < 30 && !hang; ++i) {
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        Recording each = traced_rank(rank, rank == 1 ? 0 : 60, rank == 1 ? writer : Writer::runs);
        if (rank == 1) {
          each.source = trace::without_file;
          each.communicators.clear();
          if (writer == Writer::runs)
            each.totals = trace::ActivityTotals{1000 * i, static_cast<std::uint64_t>(1000 * i), 0, 3};
        }
        detector.take_state(to_rank_state(each, calendar_ns()), start + seconds(i));
      }
      static_cast<void>(detector.take_wait("60000", start + seconds(i)));
      hang = detector.look(start + seconds(i));
    }
    ASSERT_TRUE(hang);
    EXPECT_TRUE(hang->sentence.ends_with(words)) << hang->sentence;
    EXPECT_EQ(hang->node, "node0");
  }
}

/// As after srun has gone, until a busy node has found the process that stands in for it.
TEST(HangDetector, GivesANodeTimeToTellOfItsRanks) {
  const auto said = [](HangDetector&& detector, const std::vector<Recording>& step, int looks) {
    const auto hang = judged(detector, step, looks);
    return hang ? hang->sentence : "nothing";
  };
  const std::vector<Recording> one_node = {traced_rank(0, 20), traced_rank(1, 20)};
  HangDetector detector(4, 4);
  EXPECT_FALSE(judged(detector, one_node, 14));
  const std::vector<Recording> both = {traced_rank(0, 20), traced_rank(1, 20), traced_rank(2, 0), traced_rank(3, 20)};
  const auto found = judged(detector, both, 30);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->sentence.starts_with("barrier #1: rank 2 (local 0) on node1 has not called it"));
  EXPECT_EQ(said(HangDetector(4, 4), {traced_rank(0, 40), traced_rank(1, 40)}, 30),
            "barrier #1: ranks 2,3 have no recorder; 2 ranks wait; a node tells nothing of its ranks");
  Recording other = traced_rank(3, 0);
  other.source = "torch";
  other.communicators.clear();
  EXPECT_EQ(said(HangDetector(4, 4), {traced_rank(0, 20), traced_rank(1, 20), traced_rank(2, 20), other}, 14),
            "barrier #1: rank 3 has no recorder; 3 ranks wait");
  EXPECT_EQ(said(HangDetector(4, 4, 5, true, true), one_node, 14),
            "barrier #1: ranks 2,3 have no recorder; 2 ranks wait")
      << "launchers name the ranks that record";
}

TEST(HangDetector, SaysThatARankHasEndedWithStatus0) {
  HangDetector detector(10, 4);
  std::optional<HangDetector::Hang> hang;
  const Clock::time_point start = Clock::now();
  for (int i = 1; i < 30 && !hang; ++i) {
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      Recording each = traced_rank(rank, 60, rank == 1 ? Writer::gone : Writer::runs);
      each.calls.front().state = rank == 1 ? State::completed : State::started;
      each.has_exited = rank == 1;
      if (rank == 1) each.communicators.front().completed = 1;
      if (rank != 1) {
        each.calls.push_back(each.calls.front());
        each.calls.front().state = State::completed;
        each.calls.back().ticket = each.calls.back().sequence = each.communicators.front().entered = 2;
        each.communicators.front().completed = 1;
      }
      detector.take_state(to_rank_state(each, calendar_ns()), start + seconds(i));
    }
    static_cast<void>(detector.take_wait("60000", start + seconds(i)));
    hang = detector.look(start + seconds(i));
  }
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->sentence,
            "barrier #2: rank 1 (local 1) on node0 has ended with status 0 after barrier #1; 3 ranks wait");
}

TEST(HangDetector, LearnsTheNumberOfRanksThatLaunchersStart) {
  HangDetector detector(10, 512, 5, true, true);
  const auto hang =
      judged(detector, {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)}, 30);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->rank, 1U);
  HangDetector small(10, 2, 5, true, true);
  EXPECT_FALSE(judged(small, {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)}, 30))
      << "more than there may be";
}

TEST(HangDetector, SaysOnceThatNothingIsRecorded) {
  for (const bool is_recorded : {false, true}) {
    HangDetector detector(10, 4);
    const Clock::time_point start = Clock::now();
    int lines = 0;
    for (int i = 0; i < 100; ++i) {
      const bool any = is_recorded && i == 30;
      static_cast<void>(detector.take_wait(any ? "0" : HangDetector::unrecorded, start + seconds(i)));
      if (const auto line = detector.unwatched(start + seconds(i))) {
        ++lines;
        EXPECT_EQ(i, 60);
        EXPECT_TRUE(line->starts_with("hang=10: no rank has recorded a call in the first 60 s: ")) << *line;
      }
    }
    EXPECT_EQ(lines, is_recorded ? 0 : 1);
  }
}

TEST(HangDetector, ReportsEachNewHangOfAStepThatIsNotEnded) {
  HangDetector detector(10, 4, 5, false);
  EXPECT_EQ(lines_of(detector, 12, 30, {}).size(), 1U);
  EXPECT_EQ(lines_of(detector, 14, 30, {}, seconds(30)).size(), 1U) << "another one, since it began at another time";
  HangDetector ending(10, 4, 5, true);
  EXPECT_EQ(lines_of(ending, 12, 30, {}).size(), 1U);
  EXPECT_TRUE(lines_of(ending, 14, 30, {}, seconds(30)).empty()) << "its end is under way";
}

TEST(HangDetector, SpeaksOnce) {
  HangDetector detector(4, 4);
  const std::vector<Recording> step = {traced_rank(0, 12), traced_rank(1, 0), traced_rank(2, 12), traced_rank(3, 12)};
  ASSERT_TRUE(judged(detector, step, 30));
  EXPECT_FALSE(judged(detector, step, 30));
}

}  // namespace
}  // namespace amldist::step
