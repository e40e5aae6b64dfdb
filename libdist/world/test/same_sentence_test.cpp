// One fact has one sentence: libamldist makes it of the ranks' answers, hang= and `aml-dist trace` of their recorders.
#include <gtest/gtest.h>

#include <memory>
#include <regex>

#include "scratch.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/record/flight_recorder.hpp"
#include "world/control/status_frames.hpp"
#include "world/test/table_fixture.hpp"

namespace amldist::world::same_sentence_test {
namespace {

using calls::Operation;

calls::Call call(Operation operation, std::uint64_t sequence, int root = 0) {
  calls::Call out;
  out.operation = operation;
  out.type = calls::DataType::float32;
  out.count = operation == Operation::barrier ? 0 : 1024;
  out.sequence = sequence;
  out.root = root;
  return out;
}

trace::FlightRecorder recorder_of(const std::string& folder, const trace::RecorderOwner& owner) {
  auto recorder = trace::FlightRecorder::create(folder, owner);
  EXPECT_TRUE(recorder) << recorder.error().message;
  return std::move(*recorder);
}

/// A rank that answers its peers and has a flight recorder.
class Rank {
 public:
  Rank(const std::string& folder, std::uint32_t number, std::uint32_t size)
      : place_{number, number % 2, number < 2 ? "node1" : "node2"},
        watch_(std::make_unique<CommWatch>(1, testing::all_ranks(size), number)),
        recorder_(recorder_of(folder, {"42.0", number, size, place_.local_rank, place_.host})) {
    slot_ = recorder_.add_communicator({1, number, size, "world", 0, watch_->members()});
  }
  void enter(const calls::Call& call) {
    watch_->enter(call);
    const bool has_peer = has_root(call.operation) || is_point_to_point(call.operation);
    ticket_ = recorder_.begin({call.operation, call.type, call.redop, slot_, call.sequence,
                               call.count * size_of(call.type), has_peer ? call.root : -1});
  }
  void make(const calls::Call& call) {
    enter(call);
    watch_->leave();
    recorder_.complete(ticket_);
  }
  [[nodiscard]] RankState state() const {
    RankState state = read_state(state_bytes(watch_.get()));
    state.place = place_;
    return state;
  }

 private:
  RankPlace place_;
  std::unique_ptr<CommWatch> watch_;
  trace::FlightRecorder recorder_;
  std::uint32_t slot_ = 0;
  trace::FlightRecorder::Ticket ticket_ = 0;
};

using Ranks = std::vector<Rank>;
struct Fact {
  const char* name;
  void (*happens)(Ranks& ranks);
  const char* sentence;
  std::optional<std::uint32_t> dead = {};
};
void PrintTo(const Fact& fact, std::ostream* out) { *out << fact.name; }

class SameSentence : public ::testing::TestWithParam<Fact> {};

TEST_P(SameSentence, OfAnswersAndOfRecorders) {
  const amldist::testing::ScratchFolder folder;
  Ranks ranks;
  for (std::uint32_t rank = 0; rank < 4; ++rank) ranks.emplace_back(folder.path(), rank, 4);
  for (Rank& rank : ranks) rank.make(call(Operation::barrier, 1));
  GetParam().happens(ranks);

  std::vector<RankState> answers;
  for (const Rank& rank : ranks) answers.push_back(rank.state());
  auto recorders = trace::read_step_recordings(folder.path())->recordings;
  ASSERT_EQ(recorders.size(), ranks.size());
  for (trace::Recording& each : recorders) each.writer = trace::Writer::runs;  // they are all in this process
  if (const auto dead = GetParam().dead) {
    answers[*dead].standing = Liveness::dead;
    recorders[*dead].writer = trace::Writer::gone;
  }
  const auto hang = trace::diagnose_hang(recorders);
  ASSERT_TRUE(hang);
  EXPECT_EQ(trace::sentence(*hang, 0), GetParam().sentence);
  // What a rank did last is known of a dead one by its recorder, and of a late one by its answer.
  const std::string said = diagnose(answers, {0, calls::Watchdog::anyone, false, {}}).message;
  const std::regex did_last("( after barrier #1|: its last call was barrier #1)");
  EXPECT_EQ(std::regex_replace(said, did_last, ""), std::regex_replace(trace::sentence(*hang, 0), did_last, ""));
}

INSTANTIATE_TEST_SUITE_P(
    Facts, SameSentence,
    ::testing::Values(
        Fact{"late",
             [](Ranks& ranks) {
               for (const std::size_t each : {0U, 1U, 2U}) ranks[each].enter(call(Operation::allreduce, 2));
             },
             "allreduce #2 (1024 float32, 4 KiB): rank 3 (local 1) on node2 has not called it; 3 ranks wait"},
        Fact{"dead",
             [](Ranks& ranks) {
               for (const std::size_t each : {0U, 1U, 2U}) ranks[each].enter(call(Operation::allreduce, 2));
             },
             "allreduce #2 (1024 float32, 4 KiB): rank 3 (local 1) on node2 is dead after barrier #1; 3 ranks wait", 3},
        Fact{"other_call",
             [](Ranks& ranks) {
               for (const std::size_t each : {0U, 1U, 3U}) ranks[each].enter(call(Operation::allreduce, 2));
               ranks[2].enter(call(Operation::broadcast, 2));
             },
             "allreduce #2 (1024 float32, 4 KiB): rank 2 (local 0) on node2 called broadcast #2 (1024 float32, 4 KiB) "
             "instead; 3 ranks wait"},
        Fact{"other_root",
             [](Ranks& ranks) {
               for (Rank& rank : ranks) rank.enter(call(Operation::broadcast, 2, &rank == &ranks[2] ? 1 : 0));
             },
             "broadcast #2 (1024 float32, 4 KiB): rank 2 (local 0) on node2 called broadcast #2 (1024 float32, 4 KiB) "
             "with root 1 instead of root 0; 3 ranks wait"},
        Fact{"chain",
             [](Ranks& ranks) {
               for (const int each : {0, 1, 2})
                 ranks[static_cast<std::size_t>(each)].enter(call(Operation::recv, 1, each + 1));
             },
             "recv #1 (1024 float32, 4 KiB) from rank 3: rank 3 (local 1) on node2 has not met it; 3 ranks wait"},
        Fact{"circle",
             [](Ranks& ranks) {
               ranks[0].enter(call(Operation::recv, 1, 1));
               ranks[1].enter(call(Operation::recv, 1, 0));
             },
             "deadlock of 2 ranks: rank 0 waits in recv #1 (1024 float32, 4 KiB) from rank 1 for rank 1, rank 1 waits "
             "in "
             "recv #1 (1024 float32, 4 KiB) from rank 0 for rank 0"}),
    [](const auto& fact) { return fact.param.name; });

}  // namespace
}  // namespace amldist::world::same_sentence_test
