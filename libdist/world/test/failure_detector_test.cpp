// Who is missing, found over the tree: many ranks in one process, whose frames take a millisecond and whose clock is
// the test's.
#include "world/control/failure_detector.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "trace/diagnosis/call_words.hpp"
#include "world/control/merged_states.hpp"
#include "world/control/status_frames.hpp"
#include "world/test/table_fixture.hpp"

namespace amldist::world::failure_detector_test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t comm = 42;
constexpr milliseconds grace(600);

struct World;

struct Rank final : FailureDetectorHost {
  Rank(World& in, std::uint32_t number, std::uint64_t sequence = 7);
  [[nodiscard]] std::uint32_t rank() const noexcept override { return own; }
  [[nodiscard]] std::uint32_t size() const noexcept override;
  [[nodiscard]] const RankTable& table() const noexcept override;
  [[nodiscard]] std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept override;
  /// For agreements only.
  [[nodiscard]] std::span<const std::uint32_t> ended() const noexcept override { return {}; }
  void send_to(std::uint32_t world_rank, const std::string& frame) override;
  void say(const std::string& sentence) override { said.push_back(sentence); }
  [[nodiscard]] Clock::time_point now() const override;

  World& world;
  const std::uint32_t own;
  std::shared_ptr<CommWatch> watch;
  FailureDetector detector;
  bool stopped = false;
  milliseconds delay{1};  ///< of what is sent to it
  std::vector<std::string> said;
  std::size_t sent = 0;
  std::size_t bytes = 0;
  Clock::time_point learned;
};

struct World {
  World(std::uint32_t nodes, std::uint32_t each) : table(testing::table_of(nodes, each)) {
    for (std::uint32_t rank = 0; rank < table.size(); ++rank) ranks.push_back(std::make_unique<Rank>(*this, rank));
  }
  /// Everybody is in call 7 and reports it, but those that are stopped or not in it.
  void report(const std::set<std::uint32_t>& absent = {}) {
    for (auto& rank : ranks) {
      if (rank->stopped || absent.contains(rank->own)) continue;
      rank->detector.open(rank->watch, {rank->own, calls::Watchdog::anyone, false, {}}, grace);
    }
  }
  void deliver() {
    while (!queue.empty() && queue.front().at <= clock) {
      const Mail mail = std::move(queue.front());
      queue.pop_front();
      Rank& to = *ranks[mail.to];
      if (to.stopped || ended.contains(mail.to)) continue;
      Frame frame(mail.frame.substr(world::frame_head));
      const std::uint64_t id = frame.number();
      switch (frame.kind<FrameKind>()) {
        case FrameKind::report:
          to.detector.on_report(mail.from, to.watch, frame);
          break;
        case FrameKind::query:
          to.detector.on_query(mail.from, id, to.watch, frame);
          break;
        case FrameKind::status:
          to.detector.on_status(mail.from, id, frame);
          break;
        case FrameKind::heard:
          to.detector.on_heard(mail.from, id, frame);
          break;
        case FrameKind::pair_counts:
          to.detector.on_pair_counts(mail.from, id, frame);
          break;
        default:
          to.detector.on_diagnosis(mail.from, to.watch, frame);
      }
    }
  }
  void run(milliseconds time) {
    for (const auto end = clock + time; clock < end; clock += milliseconds(1)) {
      deliver();
      for (auto& rank : ranks) {
        if (rank->stopped || ended.contains(rank->own)) continue;
        if (rank->detector.next_poll() != Clock::time_point::max()) rank->detector.poll();
        if (rank->watch->is_lost() && rank->learned == Clock::time_point()) rank->learned = clock;
      }
    }
  }
  /// Every rank that runs has this diagnosis; when the last one got it, in milliseconds.
  long long expect_diagnosis(const std::string& sentence) {
    Clock::time_point last;
    for (auto& rank : ranks) {
      if (rank->stopped || ended.contains(rank->own)) continue;
      const auto diagnosis = rank->watch->diagnosis();
      EXPECT_EQ(diagnosis ? diagnosis->message : "none", sentence) << "on rank " << rank->own;
      last = std::max(last, rank->learned);
    }
    return std::chrono::duration_cast<milliseconds>(last - start).count();
  }
  [[nodiscard]] std::size_t most_sent() const {
    std::size_t most = 0;
    for (const auto& rank : ranks) most = std::max(most, rank->sent);
    return most;
  }
  [[nodiscard]] std::size_t lines_said() const {
    std::size_t lines = 0;
    for (const auto& rank : ranks) lines += rank->said.size();
    return lines;
  }

  struct Mail {
    Clock::time_point at;
    std::uint32_t from;
    std::uint32_t to;
    std::string frame;
  };
  RankTable table;
  Clock::time_point clock = Clock::time_point() + std::chrono::hours(1);
  const Clock::time_point start = clock;
  std::deque<Mail> queue;
  std::set<std::uint32_t> ended;
  std::vector<std::unique_ptr<Rank>> ranks;
};

Rank::Rank(World& in, std::uint32_t number, std::uint64_t sequence)
    : world(in),
      own(number),
      watch(std::make_shared<CommWatch>(comm, testing::all_ranks(in.table.size()), number)),
      detector(*this) {
  calls::Call call;
  call.operation = calls::Operation::allreduce;
  call.type = calls::DataType::float32;
  call.sequence = sequence;
  call.count = 10;
  watch->enter(call);
}
std::uint32_t Rank::size() const noexcept { return world.table.size(); }
const RankTable& Rank::table() const noexcept { return world.table; }
std::optional<Liveness> Rank::end_of(std::uint32_t world_rank) const noexcept {
  return world.ended.contains(world_rank) ? std::optional(Liveness::dead) : std::nullopt;
}
Clock::time_point Rank::now() const { return world.clock; }
void Rank::send_to(std::uint32_t world_rank, const std::string& frame) {
  ++sent;
  bytes += frame.size();
  const auto at = world.clock + world.ranks[world_rank]->delay;
  world.queue.insert(std::ranges::upper_bound(world.queue, at, {}, &World::Mail::at), {at, own, world_rank, frame});
}

/// These do not answer, and all others wait. At most four are named.
std::string silent(const World& world, const std::vector<std::uint32_t>& ranks) {
  const auto local = world.table.local_ranks();
  std::string who;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, ranks.size()); ++i) {
    who += (i == 0 ? "" : ", ") + trace::describe_rank(ranks[i], local[ranks[i]], world.table.host_of(ranks[i])) +
           " does not answer (stopped, or its node is gone)";
  }
  if (ranks.size() > 4) who += ", and " + std::to_string(ranks.size() - 4) + " more ranks";
  return "allreduce #7 (10 float32, 40 bytes): " + who + "; " + std::to_string(world.ranks.size() - ranks.size()) +
         " ranks wait";
}

TEST(FailureDetector, NamesTheRankThatIsLate) {
  World world(40, 4);
  world.ranks[77] = std::make_unique<Rank>(world, 77, 6);
  world.ranks[77]->watch->leave();
  world.report({77});
  world.run(milliseconds(700));
  const auto took = world.expect_diagnosis(
      "allreduce #7 (10 float32, 40 bytes): rank 77 (local 1) on n19 has not called it: its last call was allreduce #6 "
      "(10 float32, 40 bytes); 159 ranks wait");
  EXPECT_LT(took, 100);
  EXPECT_EQ(world.lines_said(), 1U);
}

TEST(FailureDetector, AllLearnWhoseCallIsWrong) {
  World world(3, 2);
  calls::Call other = world.ranks[4]->watch->activity().call;
  other.operation = calls::Operation::broadcast;
  other.root = 1;
  world.ranks[4]->watch->enter(other);
  world.report();
  world.run(milliseconds(700));
  for (const auto& rank : world.ranks) {
    const ErrorSubject subject = rank->watch->error_subject();
    EXPECT_EQ(std::pair(subject.rank, subject.wrong), std::pair(4, 1U)) << "on rank " << rank->own;
  }
}

TEST(FailureDetector, ASilentLeaderHidesNobody) {
  World world(40, 4);
  world.ranks[4]->stopped = true;  // leads its node, and 16 others are below it
  world.report();
  world.run(milliseconds(1500));
  EXPECT_LT(world.expect_diagnosis(silent(world, {4})), 1000);
  EXPECT_EQ(world.lines_said(), 1U);
}

/// With many ranks for each processor some get their turn after the time in which all should answer.
TEST(FailureDetector, WhileAnswersComeNobodyIsCalledSilent) {
  World world(40, 4);
  for (std::uint32_t rank = 100; rank < 160; ++rank)
    if (rank % 4 != 0) world.ranks[rank]->delay = milliseconds(rank * 10 - 600);  // their leaders answer without them
  world.ranks[77]->stopped = true;
  world.report();
  world.run(milliseconds(3500));
  EXPECT_LT(world.expect_diagnosis(silent(world, {77})), 3500);
  EXPECT_EQ(world.lines_said(), 1U);
}

TEST(FailureDetector, WhereTheReporterFallsSilentAnotherOnesCallIsNamed) {
  World world(3, 2);
  world.ranks[0]->detector.open(world.ranks[0]->watch, {3, calls::Watchdog::anyone, false, {}}, grace);
  world.ranks[3]->stopped = true;
  world.run(milliseconds(1500));
  EXPECT_LT(world.expect_diagnosis(silent(world, {3})), 1000);
}

/// Until its neighbours have the diagnosis, or others have been told in place of them, a rank does not go.
TEST(FailureDetector, SaysWhetherADiagnosisIsStillOnItsWay) {
  World world(3, 2);
  world.ranks[4]->stopped = true;
  world.ranks[0]->detector.announce(world.ranks[0]->watch, {Errc::aborted, "enough"}, false);
  EXPECT_TRUE(world.ranks[0]->detector.is_telling());
  world.run(milliseconds(50));
  EXPECT_TRUE(world.ranks[0]->detector.is_telling());
  EXPECT_FALSE(world.ranks[5]->watch->is_lost());
  world.run(milliseconds(200));
  EXPECT_FALSE(world.ranks[0]->detector.is_telling());
  EXPECT_TRUE(world.ranks[5]->watch->is_lost());
}

TEST(FailureDetector, TheRootsNodeIsLost) {
  World world(40, 4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) world.ranks[rank]->stopped = true;
  world.report();
  world.run(milliseconds(1500));
  EXPECT_LT(world.expect_diagnosis(silent(world, {0, 1, 2, 3})), 1000);
  EXPECT_EQ(world.lines_said(), 1U);
}

TEST(FailureDetector, RootAndNextLeadersAreLost) {
  World world(40, 4);
  for (const std::uint32_t rank : {0U, 1U, 2U, 3U, 4U, 8U}) world.ranks[rank]->stopped = true;
  world.report();
  world.run(milliseconds(1500));
  EXPECT_LT(world.expect_diagnosis(silent(world, {0, 1, 2, 3, 4, 8})), 1000);
}

/// One rank alone is in the call that does not end: nobody else reports, and the leaders between are stopped.
TEST(FailureDetector, OneReportFindsItsWay) {
  World world(40, 4);
  world.ranks[4]->stopped = true;
  world.ranks[17 * 4]->stopped = true;
  Rank& only = *world.ranks[17 * 4 + 1];
  only.detector.open(only.watch, {only.own, calls::Watchdog::anyone, false, {}}, grace);
  world.run(milliseconds(2000));
  EXPECT_LT(world.expect_diagnosis(silent(world, {4, 68})), 1000);
}

TEST(FailureDetector, TheDeadAreNotAsked) {
  World world(40, 4);
  world.ended = {0, 4, 5};
  world.report({0, 4, 5});
  world.run(milliseconds(1500));
  EXPECT_LT(
      world.expect_diagnosis("allreduce #7 (10 float32, 40 bytes): rank 0 (local 0) on n0 is dead, rank 4 (local 0) "
                             "on n1 is dead, rank 5 (local 1) on n1 is dead; 157 ranks wait"),
      100);
}

TEST(FailureDetector, AnAbortReachesAllPastASilentLeader) {
  World world(40, 4);
  world.ranks[4]->stopped = true;
  world.ranks[70]->detector.announce(world.ranks[70]->watch, {Errc::aborted, "enough"}, false);
  world.run(milliseconds(1000));
  EXPECT_LT(world.expect_diagnosis("enough"), 1000);
  EXPECT_EQ(world.lines_said(), 0U);
}

/// The job is suspended while the ranks find out who does not answer, and goes on: what was on its way comes before
/// anybody looks at the clock. The stop puts the diagnosis off once, and accuses nobody.
TEST(FailureDetector, AStopDuringTheDiagnosisIsNotCountedTwice) {
  for (int before = 0; before < 620; before += 20) {
    World world(3, 2);
    world.ranks[5]->stopped = true;
    world.report();
    world.run(milliseconds(before));
    world.clock += milliseconds(1900);
    world.run(milliseconds(1000));
    EXPECT_LT(world.expect_diagnosis(silent(world, {5})), 1900 + 1000) << before;
  }
}

/// A process that ends after the diagnosis still waits until those have it that were only slow to say so.
TEST(FailureDetector, OnlyWhomTheDiagnosisNamesIsGivenUp) {
  World world(3, 2);
  world.ranks[5]->stopped = true;
  world.report();
  world.run(milliseconds(1500));
  static_cast<void>(world.expect_diagnosis(silent(world, {5})));
  EXPECT_TRUE(world.ranks[0]->detector.is_silent(5));
  World other(3, 2);
  other.ranks[4]->stopped = true;  // while it is told
  other.ranks[0]->detector.announce(other.ranks[0]->watch, {Errc::aborted, "enough"}, false);
  other.run(milliseconds(500));
  EXPECT_FALSE(other.ranks[0]->detector.is_silent(4));
}

/// A frame behind the communicator's number, as it is handed to the detector.
Frame body_of(FrameWriter& writer) {
  Frame frame(writer.take().substr(world::frame_head));
  static_cast<void>(frame.number());
  return frame;
}

Frame report_of(const DiagnosisTrigger& trigger, const std::vector<std::uint32_t>& silent = {}) {
  FrameWriter writer(FrameKind::report);
  writer.number(comm).number(static_cast<std::uint64_t>(grace.count()));
  write_trigger(writer, trigger);
  write_ranks(writer, silent);
  return body_of(writer);
}

TEST(FailureDetector, AReportAboutRanksThatAreNotThereIsDropped) {
  for (const auto& trigger : {DiagnosisTrigger{6, calls::Watchdog::anyone, true, {}}, DiagnosisTrigger{1, 6, true, {}},
                              DiagnosisTrigger{1, 1 << 30, true, {}}, DiagnosisTrigger{1, -2, true, {}}}) {
    World world(3, 2);
    Rank& root = *world.ranks[0];
    Frame frame = report_of(trigger);
    root.detector.on_report(1, root.watch, frame);
    EXPECT_EQ(root.detector.next_poll(), Clock::time_point::max()) << trigger.reporter << " " << trigger.waits_for;
  }
}

/// A report may say of any rank of the world that it was left out. One that is not in the communicator answers that it
/// does not know it.
TEST(FailureDetector, AStrangersAnswerIsNoRanksState) {
  World world(3, 2);
  Rank& root = *world.ranks[0];
  root.watch = std::make_shared<CommWatch>(comm, std::vector<std::uint32_t>{0, 1}, 0);
  Frame report = report_of({1, calls::Watchdog::anyone, false, {}}, {5});
  root.detector.on_report(1, root.watch, report);
  const auto answer_of = [&](std::uint32_t rank, bool is_unaware) {
    MergedStates states;
    if (!is_unaware) states.add(rank, state_bytes(world.ranks[rank]->watch.get()));
    FrameWriter writer(FrameKind::status);
    writer.number(comm).number(1).number(is_unaware ? 1 : 0);
    states.write(writer);
    Frame frame = body_of(writer);
    root.detector.on_status(rank, comm, frame);
  };
  answer_of(5, true);
  answer_of(1, false);
  world.clock += milliseconds(5000);
  root.detector.poll();
  ASSERT_TRUE(root.watch->diagnosis());
  EXPECT_EQ(
      root.watch->diagnosis()->message,
      "allreduce #7 (10 float32, 40 bytes) of group 'ranks 0,1': rank 0 (local 0) on n0 has not called it: it has "
      "made no call yet; 1 rank waits");
}

/// What a rank sends and how long the answers are do not grow with the world.
TEST(FailureDetector, CostsARankItsNeighboursOnly) {
  std::vector<std::size_t> most_bytes;
  for (const std::uint32_t nodes : {32U, 128U}) {
    World world(nodes, 2);
    world.ranks[nodes * 2 - 1]->stopped = true;
    world.report();
    world.run(milliseconds(800));
    EXPECT_LT(world.expect_diagnosis(silent(world, {nodes * 2 - 1})), 1000);
    EXPECT_LE(world.most_sent(), 5U * (16 + 2));  // heard, query and diagnosis to those below, and a few
    most_bytes.push_back(0);
    for (const auto& rank : world.ranks) most_bytes.back() = std::max(most_bytes.back(), rank->bytes);
  }
  EXPECT_LT(most_bytes[1], 2 * most_bytes[0]);
}

}  // namespace
}  // namespace amldist::world::failure_detector_test
