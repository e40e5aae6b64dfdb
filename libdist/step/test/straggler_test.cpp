// Whom all ranks wait for, directly or by way of others, on recordings made up by hand and of pipelines played through.
#include "trace/diagnosis/straggler.hpp"

#include <chrono>
#include <functional>
#include <random>

#include "step/server/hang_detector.hpp"
#include "support.hpp"

namespace amldist::trace::straggler_test {
namespace {

using recorder_format::State;

constexpr std::int64_t start = 1'700'000'000'000'000'000;
constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t second = 1000 * ms;

Recording recording_of(std::uint32_t rank, std::uint32_t size, std::string source = "mpi") {
  Recording recording;
  recording.rank = rank;
  recording.size = size;
  recording.host = "node";
  recording.source = std::move(source);
  recording.writer = Writer::runs;
  recording.communicators.push_back({0, 1, rank, size, 0, 0, false, "world", MemberRanks::row(0, 1, size)});
  return recording;
}

/// Adds a call that has ended. Times from `start` on.
CallRecord& add(Recording& recording, calls::Operation operation, std::int64_t begin, std::int64_t end,
                std::int32_t peer) {
  CallRecord call;
  call.ticket = recording.calls.size() + 1;
  call.operation = operation;
  call.peer = peer;
  call.state = State::completed;
  call.enqueued_ns = call.started_ns = start + begin;
  call.ended_ns = start + end;
  recording.calls.push_back(call);
  return recording.calls.back();
}

CallRecord& add_of_all(Recording& recording, std::int64_t begin, std::int64_t end, std::uint32_t slot = 0) {
  CallRecord& call = add(recording, calls::Operation::allreduce, begin, end, -1);
  call.sequence = call.ticket;
  call.communicator = slot;
  return call;
}

/// A rank in a call of all, 50 ms of each 100.
Recording rank_in_calls(std::uint64_t calls) {
  Recording recording = recording_of(0, 4);
  for (std::uint64_t i = 1; i <= calls; ++i) {
    const auto begin = static_cast<std::int64_t>(i) * 100 * ms;
    add_of_all(recording, begin, begin + 50 * ms);
  }
  return recording;
}

/// How long a stage computes for one part of a batch.
using Cost = std::function<std::int64_t(std::size_t stage)>;

/// A pipeline: in each step the parts of a batch go through all stages, and their gradients all the way back.
class Pipeline {
 public:
  Pipeline(std::size_t stages, std::size_t parts) : parts_(parts), clock_(stages, 0) {
    for (std::size_t i = 0; i < stages; ++i)
      recordings_.push_back(recording_of(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(stages)));
  }

  Pipeline& run(std::size_t steps, const Cost& cost) {
    for (std::size_t i = 0; i < steps; ++i) {
      pass(true, cost);
      pass(false, cost);
    }
    return *this;
  }
  Pipeline& pause(std::size_t stage, std::int64_t time) {
    clock_[stage] += time;
    return *this;
  }
  [[nodiscard]] const std::vector<Recording>& recordings() const { return recordings_; }
  [[nodiscard]] std::optional<std::uint32_t> straggler() const {
    const auto found = find_straggler(recordings_);
    return found ? std::optional(found->rank.rank) : std::nullopt;
  }

 private:
  void pass(bool forward, const Cost& cost) {
    const std::size_t stages = clock_.size();
    std::vector<std::int64_t> sent(parts_, 0);
    for (std::size_t i = 0; i < stages; ++i) {
      const std::size_t stage = forward ? i : stages - 1 - i;
      for (std::size_t part = 0; part < parts_; ++part) {
        if (i > 0) receive(stage, forward ? stage - 1 : stage + 1, sent[part]);
        clock_[stage] += cost(stage);
        sent[part] = clock_[stage];
        const std::size_t next = forward ? stage + 1 : stage - 1;
        if (i + 1 < stages)
          add(recordings_[stage], calls::Operation::send, sent[part], sent[part], static_cast<int>(next));
      }
    }
  }

  void receive(std::size_t stage, std::size_t from, std::int64_t sent) {
    const std::int64_t begin = clock_[stage];
    clock_[stage] = std::max(begin, sent);
    add(recordings_[stage], calls::Operation::recv, begin, clock_[stage], static_cast<int>(from));
  }

  std::size_t parts_;
  std::vector<std::int64_t> clock_;
  std::vector<Recording> recordings_;
};

Cost slow_at(std::size_t slow, std::int64_t times) {
  return [=](std::size_t stage) { return stage == slow ? times * 10 * ms : 10 * ms; };
}
std::int64_t balanced(std::size_t /*stage*/) { return 10 * ms; }

TEST(Straggler, OfAPipelineIsTheSlowStageWhereverItIs) {
  constexpr std::size_t stages = 6;
  for (std::size_t slow = 0; slow < stages; ++slow) {
    EXPECT_EQ(Pipeline(stages, 16).run(60, slow_at(slow, 4)).straggler(), slow) << "three parts of the time";
    EXPECT_EQ(Pipeline(stages, 1).run(60, slow_at(slow, 50)).straggler(), slow) << "one part at a time";
  }
}

TEST(Straggler, IsNobodyInABalancedPipeline) {
  for (const std::size_t stages : {2U, 4U, 8U}) {
    for (const std::size_t parts : {1U, 2U, 8U, 32U})
      EXPECT_FALSE(Pipeline(stages, parts).run(100, balanced).straggler())
          << stages << " stages, " << parts << " parts";
  }
}

TEST(Straggler, IsNobodyWhereStagesPauseAtRandom) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    Pipeline pipeline(4, 4);
    const auto cost = [&](std::size_t) {
      return static_cast<std::int64_t>(random() % 4 == 0 ? random() % 300 : 5) * ms;
    };
    EXPECT_FALSE(pipeline.run(40, cost).straggler()) << "seed " << seed;
  }
}

TEST(Straggler, IsNobodyWhereTheFirstStageComesLateToTheStartOrTheLastWritesACheckpoint) {
  EXPECT_FALSE(Pipeline(4, 8).pause(0, 30 * second).run(60, balanced).straggler());
  EXPECT_FALSE(Pipeline(4, 8).run(30, balanced).pause(3, 20 * second).run(30, balanced).straggler());
}

TEST(Straggler, IsNotAStageThatOthersDoNotWaitFor) {
  // Ranks 0 and 1 are one pipeline, in which 0 is slow; 2 and 3 are another, which has nothing to do with it.
  const auto slow = Pipeline(2, 8).run(100, slow_at(0, 4)).recordings();
  std::vector<Recording> step = Pipeline(4, 1).run(100, balanced).recordings();
  for (std::size_t i = 0; i < 2; ++i) step[i].calls = slow[i].calls;
  const auto own = own_waits(step[0], start + 60 * second);
  ASSERT_TRUE(own);
  EXPECT_LT(own->part, 0.1);
  EXPECT_FALSE(find_straggler(step));
  step.resize(3);
  EXPECT_FALSE(find_straggler(step)) << "one is missing";
}

TEST(Straggler, IsFoundByWayOfGroups) {
  // Two stages of two ranks, each a group that adds up its gradients: 0 sends to 2, 1 to 3, and 2 is late.
  std::vector<Recording> step;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    step.push_back(recording_of(rank, 4, "torch"));
    const std::uint32_t first = rank / 2 * 2;
    step.back().communicators.push_back({1, 100 + first, rank % 2, 2, 0, 0, false, "", MemberRanks::row(first, 1, 2)});
  }
  const auto message = [](Recording& of, calls::Operation operation, std::int64_t begin, std::int64_t end, int peer) {
    add(of, operation, begin, end, peer).enqueued_ns -= 1;  // posted, then waited for
  };
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t begin = i * 200 * ms;
    message(step[0], calls::Operation::recv, begin, begin + 150 * ms, 2);
    message(step[1], calls::Operation::recv, begin, begin + 2 * ms, 3);
    add_of_all(step[1], begin + 2 * ms, begin + 151 * ms, 1);
    add_of_all(step[0], begin + 150 * ms, begin + 151 * ms, 1);
    add_of_all(step[3], begin + 2 * ms, begin + 151 * ms, 1);
    add_of_all(step[2], begin + 150 * ms, begin + 151 * ms, 1);
  }
  const auto found = find_straggler(step);
  ASSERT_TRUE(found);
  EXPECT_EQ(sentence(*found),
            "rank 2 (local 0) on node: the others wait for it 73 % of their time, which is 98 % of their waits");
  const auto named = name_straggler(step, find_waits(step));
  ASSERT_TRUE(named) << "only the messages tell that rank 0 was not the cause of what rank 1 waited";
  EXPECT_EQ(named->rank, 2U);
}

OwnWaits waits_of(std::uint32_t rank, std::uint64_t calls, double part, std::vector<WaitedFor> awaited) {
  return {rank, rank % 2, "node", calls, part, part, std::move(awaited)};
}
/// A rank that waits in calls of all alone.
OwnWaits in_world(std::uint32_t rank, std::uint64_t calls, double part) {
  return waits_of(rank, calls, part, {{true, 1, part}});
}
WaitedFor rank(std::uint32_t number, double part) { return {false, number, part}; }

TEST(OwnWaits, ArePartOfTheLastMinuteWithoutTheTwoLongest) {
  Recording recording = rank_in_calls(400);  // 40 s
  recording.calls[100].enqueued_ns = recording.calls[100].started_ns -= 3 * second;
  const auto own = own_waits(recording, start + 41 * second);
  ASSERT_TRUE(own);
  EXPECT_NEAR(own->part, 0.46, 0.01) << "50 of each 100 ms; the checkpoint of 3 s and what lies in it do not count";
  EXPECT_NEAR(static_cast<double>(own->calls), 600, 10);
  ASSERT_EQ(own->awaited.size(), 1U);
  EXPECT_EQ(own->awaited[0], (WaitedFor{true, 1, own->part}));
  EXPECT_FALSE(own_waits(rank_in_calls(90), start + 11 * second)) << "9 s are too short";
  EXPECT_FALSE(own_waits(Recording(), start));
}

TEST(OwnWaits, CountAMomentOnceAndForAllThatAreWaitedFor) {
  Recording recording = recording_of(0, 4);
  for (std::int64_t i = 0; i < 200; ++i) {  // MPI_Waitall of two messages, half of the time
    for (const std::int32_t peer : {1, 3}) {
      CallRecord& call = add(recording, calls::Operation::recv, i * 100 * ms, i * 100 * ms + 50 * ms, peer);
      call.enqueued_ns -= 20 * ms;
    }
  }
  const auto own = own_waits(recording, start + 20 * second);
  ASSERT_TRUE(own);
  EXPECT_NEAR(own->part, 0.5, 0.01);
  ASSERT_EQ(own->awaited.size(), 2U);
  for (const WaitedFor& each : own->awaited) EXPECT_NEAR(each.part, 0.5, 0.01);
  for (CallRecord& call : recording.calls) call.started_ns = 0;  // MPI_Test has ended them
  EXPECT_FALSE(own_waits(recording, start + 20 * second)) << "nobody knows whether it waited";
  for (std::int64_t i = 0; i < 200; ++i) add(recording, calls::Operation::recv, 20 * second, 20 * second, 1);
  const auto polled = own_waits(recording, start + 20 * second);
  ASSERT_TRUE(polled);
  EXPECT_DOUBLE_EQ(polled->part, 0);
  EXPECT_NEAR(polled->at_most, 0.7, 0.01) << "from the moment that they were posted";
}

TEST(OwnWaits, OfAMessageOfAnyRankAreForNobody) {
  Recording recording = recording_of(0, 4);
  for (std::int64_t i = 0; i < 200; ++i)
    add(recording, calls::Operation::recv, i * 100 * ms, i * 100 * ms + 50 * ms, recorder_format::any_peer);
  const auto own = own_waits(recording, start + 20 * second);
  ASSERT_TRUE(own);
  EXPECT_NEAR(own->part, 0.5, 0.01);
  EXPECT_TRUE(own->awaited.empty());
}

TEST(Straggler, IsWhoWaitsLeastWhileAllOthersWait) {
  const auto found = straggler_of(
      std::vector{in_world(0, 600, 0.5), in_world(1, 601, 0.48), in_world(2, 600, 0.02), in_world(3, 599, 0.5)});
  ASSERT_TRUE(found);
  EXPECT_EQ(sentence(*found),
            "rank 2 (local 0) on node: the others wait for it 46 % of their time, which is 93 % of their waits");
  const auto nobody = [](const std::vector<OwnWaits>& all) { return !straggler_of(all); };
  EXPECT_TRUE(nobody({in_world(0, 600, 0.5), in_world(1, 600, 0.45)})) << "both wait as much";
  EXPECT_TRUE(nobody({in_world(0, 600, 0.5), in_world(1, 600, 0.1), in_world(2, 600, 0.05)})) << "two come late";
  EXPECT_TRUE(nobody({in_world(0, 600, 0.09), in_world(1, 600, 0.0)})) << "too little";
  EXPECT_TRUE(nobody({in_world(0, 4, 0.9), in_world(1, 4, 0.0)})) << "too few calls";
  EXPECT_TRUE(nobody({in_world(0, 600, 0.5)}));
  EXPECT_TRUE(nobody({}));
  OwnWaits polls = in_world(1, 600, 0.02);
  polls.at_most = 0.5;
  EXPECT_TRUE(nobody({in_world(0, 600, 0.5), polls})) << "it may wait as well, and test";
}

TEST(Straggler, IsWhereAllChainsEnd) {
  const auto found = [](const std::vector<OwnWaits>& all) { return straggler_of(all).has_value(); };
  const OwnWaits last = waits_of(0, 600, 0.02, {});
  EXPECT_TRUE(found({last, waits_of(1, 60, 0.6, {rank(0, 0.6)}), waits_of(2, 900, 0.6, {rank(1, 0.6)}),
                     waits_of(3, 600, 0.6, {rank(2, 0.4), rank(3, 0.2)})}));
  EXPECT_FALSE(
      found({last, waits_of(1, 600, 0.6, {rank(0, 0.2), rank(2, 0.4)}), waits_of(2, 600, 0.6, {rank(1, 0.6)})}))
      << "1 and 2 wait for each other";
  EXPECT_FALSE(
      found({last, waits_of(1, 600, 0.6, {rank(0, 0.1), rank(3, 0.5)}),
             waits_of(2, 600, 0.6, {rank(0, 0.1), rank(1, 0.5)}), waits_of(3, 600, 0.6, {rank(0, 0.1), rank(2, 0.5)})}))
      << "the circle of 1, 3 and 2 is what takes the time";
  EXPECT_FALSE(found({last, waits_of(1, 600, 0.6, {})})) << "nobody knows for whom";
  EXPECT_TRUE(
      found({last, waits_of(1, 600, 0.6, {rank(0, 0.6), rank(2, 0.6)}),
             waits_of(2, 600, 0.6, {rank(1, 0.6), rank(3, 0.6)}), waits_of(3, 600, 0.6, {rank(2, 0.6), rank(0, 0.6)})}))
      << "each waits for both neighbours at once";
  EXPECT_FALSE(
      found({waits_of(0, 600, 0.02, {{true, 7, 0.01}}), waits_of(1, 600, 0.5, {{true, 7, 0.01}, {true, 8, 0.49}}),
             waits_of(2, 600, 0.5, {{true, 8, 0.49}})}))
      << "group 8 is not the last one's";
}

TEST(HangDetector, NamesTheStragglerOnceWhenItWasOneForAWhile) {
  step::HangDetector detector(60, 2);
  const Clock::time_point begin = Clock::now();
  const auto told_after = [&](int seconds) {
    const auto now = begin + std::chrono::seconds(seconds);
    detector.take_shares("node1 0:0:600:612:612:r1=612", now);
    detector.take_shares("node2 1:0:600:14:14:", now);
    return detector.straggler(now);
  };
  EXPECT_FALSE(told_after(0));
  EXPECT_FALSE(told_after(4));
  EXPECT_EQ(told_after(6),
            "rank 1 (local 0) on node2: the others wait for it 60 % of their time, which is 98 % of their waits");
  EXPECT_FALSE(told_after(30)) << "once";
}

TEST(HangDetector, NamesNobodyWhileARankIsUnheard) {
  step::HangDetector detector(60, 2);
  const Clock::time_point now = Clock::now();
  detector.take_shares("node1 0:0:600:612:612:r1=612", now);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(detector.straggler(now + std::chrono::seconds(i))) << "of rank 1";
}

}  // namespace
}  // namespace amldist::trace::straggler_test
