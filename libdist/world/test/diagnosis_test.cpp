// Diagnoses about the states that ranks report, and identities from the environments of all launchers.
#include "world/control/diagnosis.hpp"

#include <gtest/gtest.h>

#include <map>

#include "launch/placement/process_identity.hpp"

namespace amldist::world {
namespace {

Activity inside(calls::Operation operation, std::uint64_t sequence, std::size_t count = 1024) {
  Activity activity;
  activity.sequence = activity.call.sequence = sequence;
  activity.inside = true;
  activity.call.operation = operation;
  activity.call.type = calls::DataType::float32;
  activity.call.count = count;
  return activity;
}
Activity after(calls::Operation operation, std::uint64_t sequence) {
  Activity activity = inside(operation, sequence);
  activity.inside = false;
  return activity;
}
PastCall past(const Activity& activity) { return {activity.call, 0}; }
/// `name`: "rank 3 (b)" is the first of its node.
RankPlace place_of(std::string_view name) {
  return {static_cast<std::uint32_t>(name[5] - '0'), 0, std::string(1, name[8])};
}
RankState here(const char* name, const Activity& activity) {
  return {Liveness::here, activity, {past(activity)}, {}, {}, place_of(name)};
}
RankState absent(const char* name, Liveness standing) { return {standing, {}, {}, {}, {}, place_of(name)}; }
RankState gone_on(const char* name, const Activity& activity, std::initializer_list<Activity> before) {
  RankState state = here(name, activity);
  state.past.clear();
  for (const Activity& each : before) state.past.push_back(past(each));
  if (!is_point_to_point(activity.call.operation)) state.past.push_back(past(activity));
  return state;
}

TEST(Diagnosis, NamesAStoppedRank) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 17, 1048576)),
                                        absent("rank 1 (b)", Liveness::silent)};
  const Diagnosis diagnosis = diagnose(ranks, {0, 1, false, {}});
  EXPECT_EQ(diagnosis.code, Errc::timeout);
  EXPECT_EQ(
      diagnosis.message,
      "allreduce #17 (1048576 float32, 4 MiB): rank 1 (local 0) on b does not answer (stopped, or its node is gone); "
      "1 rank waits");
  EXPECT_EQ(diagnosis.subject.rank, 1);
  EXPECT_EQ(diagnosis.subject.number, 17U);
}

TEST(Diagnosis, NamesADeadRankAndNotThoseThatWaitForIt) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::barrier, 4)),
                                        here("rank 1 (a)", after(calls::Operation::allreduce, 3)),
                                        absent("rank 2 (b)", Liveness::dead)};
  const Diagnosis diagnosis = diagnose(ranks, {0, 1, false, {}});
  EXPECT_EQ(diagnosis.code, Errc::peer);
  EXPECT_EQ(diagnosis.message, "barrier #4: rank 2 (local 0) on b is dead; 1 rank waits");
  EXPECT_EQ(diagnosis.subject.wrong, 0U) << "it made no wrong call";
}

TEST(Diagnosis, SaysWhatALateRankDidLast) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 9)),
                                        here("rank 1 (b)", after(calls::Operation::broadcast, 8))};
  EXPECT_EQ(
      diagnose(ranks, {0, 1, false, {}}).message,
      "allreduce #9 (1024 float32, 4 KiB): rank 1 (local 0) on b has not called it: its last call was broadcast #8 "
      "(1024 float32, 4 KiB); 1 rank waits");
}

TEST(Diagnosis, SaysOfARankBeforeItsFirstCallWhetherItStillMakesTheGroup) {
  RankState late = here("rank 1 (b)", inside(calls::Operation::split, 0));
  late.past.clear();
  for (const bool is_inside : {true, false}) {
    late.activity.inside = is_inside;
    const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::barrier, 1)), late};
    EXPECT_EQ(diagnose(ranks, {0, 1, false, {}}).message,
              std::string("barrier #1: rank 1 (local 0) on b has not called it: ") +
                  (is_inside ? "it is in split" : "it has made no call yet") + "; 1 rank waits");
  }
}

TEST(Diagnosis, ShowsACircle) {
  Activity receiving = inside(calls::Operation::recv, 6);
  receiving.sequence = 14;
  receiving.call.root = 0;
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::finalize, 15)),
                                        here("rank 1 (b)", receiving)};
  EXPECT_EQ(
      diagnose(ranks, {0, 1, false, {}}).message,
      "deadlock of 2 ranks: rank 0 waits in finalize #15 for rank 1, rank 1 waits in recv #6 (1024 float32, 4 KiB) "
      "from rank 0 for rank 0");
}

TEST(Diagnosis, NamesARankThatHasGoneOnWithoutTheOthers) {  // it ended its split at once
  const Activity split = inside(calls::Operation::split, 7);
  const std::vector<RankState> ranks = {gone_on("rank 0 (a)", inside(calls::Operation::allgather, 8), {split}),
                                        here("rank 1 (a)", split), here("rank 2 (b)", split)};
  const Diagnosis diagnosis = diagnose(ranks, {1, 0, false, {}});
  EXPECT_EQ(diagnosis.code, Errc::timeout);
  EXPECT_EQ(diagnosis.subject.rank, -1);
  EXPECT_EQ(diagnosis.message,
            "split #7: rank 1 (local 0) on a is still in it, rank 2 (local 0) on b is still in it; 1 rank waits");
}

TEST(Diagnosis, TakesTheLowestCallInWhichARankIsStuck) {  // 0 waits for 1, 1 for 2
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 9)),
                                        here("rank 1 (b)", inside(calls::Operation::broadcast, 8)),
                                        here("rank 2 (c)", after(calls::Operation::barrier, 7))};
  EXPECT_TRUE(diagnose(ranks, {0, 1, false, {}}).message.starts_with("broadcast #8 (1024 float32, 4 KiB): rank 2 "));
}

TEST(Diagnosis, TheMinorityMadeTheWrongCall) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::reduce, 5)),
                                        here("rank 1 (b)", inside(calls::Operation::allreduce, 5)),
                                        here("rank 2 (c)", inside(calls::Operation::allreduce, 5))};
  const Diagnosis diagnosis = diagnose(ranks, {1, 0, true, {}});
  EXPECT_EQ(diagnosis.code, Errc::peer);
  EXPECT_EQ(diagnosis.message,
            "allreduce #5 (1024 float32, 4 KiB): rank 0 (local 0) on a called reduce #5 (1024 float32, 4 KiB) instead; "
            "2 ranks "
            "wait");
  EXPECT_EQ(diagnosis.subject.rank, 0);
  EXPECT_EQ(diagnosis.subject.wrong, 1U);
}

TEST(Diagnosis, WithoutAMajorityAllAreQuoted) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 5, 10)),
                                        here("rank 1 (b)", inside(calls::Operation::allreduce, 5, 11)),
                                        here("rank 2 (c)", inside(calls::Operation::allreduce, 5, 12))};
  const Diagnosis diagnosis = diagnose(ranks, {0, 1, true, {}});
  EXPECT_EQ(diagnosis.code, Errc::peer);
  EXPECT_EQ(diagnosis.subject.rank, -1);
  EXPECT_EQ(diagnosis.subject.wrong, 3U);
  EXPECT_EQ(
      diagnosis.message,
      "call #5: rank 0 on a called allreduce #5 (10 float32, 40 bytes), rank 1 on b called allreduce #5 (11 float32, "
      "44 bytes), rank 2 on c called allreduce #5 (12 float32, 48 bytes); nothing recorded tells which of them is "
      "wrong");
}

TEST(Diagnosis, ReductionsThatDifferAreTold) {
  Activity other = inside(calls::Operation::allreduce, 5);
  other.call.redop = calls::ReduceOp::max;
  const auto right = here("rank 0 (a)", inside(calls::Operation::allreduce, 5));
  const std::vector<RankState> ranks = {right, here("rank 1 (b)", other),
                                        here("rank 2 (c)", inside(calls::Operation::allreduce, 5))};
  EXPECT_EQ(
      diagnose(ranks, {0, 1, true, {}}).message,
      "allreduce #5 (1024 float32, 4 KiB): rank 1 (local 0) on b called allreduce #5 (1024 float32, 4 KiB) with max "
      "instead of sum; 2 ranks wait");
  EXPECT_EQ(
      diagnose(std::vector(ranks.begin(), ranks.begin() + 2), {0, 1, true, {}}).message,
      "call #5: rank 0 on a called allreduce #5 (1024 float32, 4 KiB), rank 1 on b called allreduce #5 (1024 float32, "
      "4 KiB) with max; nothing recorded tells which of them is wrong");
}

TEST(Diagnosis, ARankThatCompletedTheWrongCallDoesNotAccuseOthers) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 7)),
                                        here("rank 1 (b)", inside(calls::Operation::allreduce, 6)),
                                        here("rank 2 (c)", inside(calls::Operation::allreduce, 6))};
  const std::string sentence = "allreduce #6 (1024 float32, 4 KiB): rank 0 (local 0) on a made another call";
  EXPECT_EQ(diagnose(ranks, {0, 2, true, {}}).message, sentence);
  EXPECT_EQ(diagnose(ranks, {2, 0, true, {}}).message, sentence);
  const std::vector<RankState> two = {ranks[0], ranks[2]};
  EXPECT_EQ(diagnose(two, {0, 1, true, {}}).message, sentence);
}

TEST(Diagnosis, TheFirstDifferingCallIsNamedAfterAllHaveContinued) {  // a gather ends on all but the root
  Activity other_root = inside(calls::Operation::gather, 8, 10);
  other_root.call.root = 1;
  const Activity gather = inside(calls::Operation::gather, 8, 10);
  const std::vector<RankState> ranks = {here("rank 0 (a)", gather),
                                        gone_on("rank 1 (a)", inside(calls::Operation::barrier, 9), {gather}),
                                        gone_on("rank 2 (b)", inside(calls::Operation::barrier, 9), {other_root})};
  const std::string sentence =
      "gather #8 (10 float32, 40 bytes): rank 2 (local 0) on b called gather #8 (10 float32, 40 bytes) with root 1 "
      "instead of root 0; 2 ranks wait";
  EXPECT_EQ(diagnose(ranks, {0, 2, true, {}}).message, sentence);
  EXPECT_EQ(diagnose(ranks, {2, 0, true, {}}).message, sentence);
  EXPECT_EQ(diagnose(ranks, {0, calls::Watchdog::anyone, false, {}}).message,
            sentence);  // or nobody noticed before the deadline
}

TEST(Diagnosis, ListsThatDifferAreAnotherCall) {
  const Activity call = inside(calls::Operation::allgatherv, 4);
  std::vector<RankState> ranks = {here("rank 0 (a)", call), here("rank 1 (a)", call), here("rank 2 (b)", call)};
  ranks[1].past.front().lists = 7;
  EXPECT_EQ(diagnose(ranks, {1, 0, true, {}}).message,
            "allgatherv #4 (1024 float32, 4 KiB): rank 1 (local 0) on a called allgatherv #4 (1024 float32, 4 KiB) "
            "with other "
            "counts; 2 ranks wait");
}

TEST(Diagnosis, CountsOfPairsShowWhoseAreWrong) {
  const Activity call = inside(calls::Operation::alltoallv, 4);
  std::vector<RankState> ranks = {here("rank 0 (a)", call), here("rank 1 (a)", call), here("rank 2 (b)", call)};
  for (RankState& rank : ranks) rank.pairs = {4, {5, 5, 5}, {5, 5, 5}};
  ranks[2].pairs = {4, {6, 6, 6}, {6, 6, 6}};
  EXPECT_EQ(
      diagnose(ranks, {2, 0, true, {}}).message,
      "alltoallv #4 (1024 float32, 4 KiB): rank 2 (local 0) on b called it with other counts: rank 0 (local 0) on "
      "a gives 5 elements, rank 2 (local 0) on b expects 6");
}

TEST(Diagnosis, OfTwoRanksWhoseCountsDifferBothAreQuoted) {
  const Activity call = inside(calls::Operation::alltoallv, 4);
  std::vector<RankState> ranks = {here("rank 0 (a)", call), here("rank 1 (b)", call), here("rank 2 (b)", call)};
  for (RankState& rank : ranks) rank.pairs = {4, {5, 5, 5}, {5, 5, 5}};
  ranks[1].pairs.gives[0] = 7;
  EXPECT_EQ(
      diagnose(ranks, {0, 1, true, {}}).message,
      "alltoallv #4 (1024 float32, 4 KiB): rank 1 (local 0) on b gives 7 elements, rank 0 (local 0) on a expects 5");
}

TEST(Diagnosis, QuotesWhyARankCannotReachAnother) {
  std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 4)),
                                  here("rank 1 (b)", inside(calls::Operation::allreduce, 4)),
                                  here("rank 2 (c)", inside(calls::Operation::allreduce, 5))};
  ranks[1].trouble = "cannot reach rank 0 (local 0) on a: cannot connect to 10.0.0.7:20048: No route to host";
  EXPECT_EQ(
      diagnose(ranks, {0, 1, false, {}}).message,
      "allreduce #4 (1024 float32, 4 KiB): rank 1 (local 0) on b cannot reach rank 0 (local 0) on a: cannot connect to "
      "10.0.0.7:20048: No route to host");
}

TEST(Diagnosis, SaysWhoWaitsForWhomWhereNobodyIsMissing) {
  std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::barrier, 4)),
                                  here("rank 1 (b)", inside(calls::Operation::barrier, 4))};
  ranks[0].activity.waits_for = 1;
  EXPECT_EQ(diagnose(ranks, {0, 1, false, {}}).message,
            "barrier #4: no rank is missing, but it did not end before the deadline (rank 0 waits for rank 1): is the "
            "deadline too short for it, or the network stuck?");
}

Activity waiting_in(calls::Operation operation, std::uint64_t collectives, int partner) {
  Activity message = inside(operation, 3);
  message.sequence = collectives;
  message.call.root = partner;
  return message;
}

TEST(Diagnosis, WhoDoesNotReceiveBeforeTheEndIsNamedAndNotTheSender) {
  const std::vector<RankState> ranks = {gone_on("rank 0 (a)", waiting_in(calls::Operation::send, 5, 2), {}),
                                        here("rank 1 (b)", inside(calls::Operation::finalize, 6)),
                                        here("rank 2 (c)", inside(calls::Operation::finalize, 6))};
  EXPECT_EQ(diagnose(ranks, {1, 0, false, {}}).message,
            "send #3 (1024 float32, 4 KiB) to rank 2: rank 2 (local 0) on c has come to finalize #6 without it; 2 "
            "ranks wait");
  const std::vector<RankState> deaf_below = {here("rank 0 (a)", inside(calls::Operation::finalize, 6)),
                                             gone_on("rank 1 (b)", waiting_in(calls::Operation::send, 5, 0), {})};
  EXPECT_TRUE(diagnose(deaf_below, {1, 0, false, {}})
                  .message.ends_with("rank 0: rank 0 (local 0) on a has come to finalize #6 without it; 1 rank waits"));
}

TEST(Diagnosis, WhoWaitsForAMessageOfTheMissingRankIsNotMissing) {  // 3 waits for 2, 2 for 1
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::barrier, 5)),
                                        here("rank 1 (a)", after(calls::Operation::allreduce, 4)),
                                        gone_on("rank 2 (b)", waiting_in(calls::Operation::recv, 4, 1), {}),
                                        gone_on("rank 3 (b)", waiting_in(calls::Operation::recv, 4, 2), {})};
  const std::string sentence =
      "barrier #5: rank 1 (local 0) on a has not called it: its last call was allreduce #4 (1024 float32, 4 KiB); 3 "
      "ranks "
      "wait";
  EXPECT_EQ(diagnose(ranks, {0, calls::Watchdog::anyone, false, {}}).message, sentence);
  EXPECT_EQ(diagnose(ranks, {3, 2, false, {}}).message, sentence);
}

TEST(Diagnosis, AChainOfMessagesIsFollowedToItsEnd) {  // 0 waits for 1, 1 for 2, which computes; 3 waits elsewhere
  const std::vector<RankState> ranks = {gone_on("rank 0 (a)", waiting_in(calls::Operation::recv, 4, 1), {}),
                                        gone_on("rank 1 (a)", waiting_in(calls::Operation::recv, 4, 2), {}),
                                        here("rank 2 (b)", after(calls::Operation::barrier, 4)),
                                        gone_on("rank 3 (b)", waiting_in(calls::Operation::recv, 4, 4), {}),
                                        absent("rank 4 (c)", Liveness::silent)};
  EXPECT_EQ(
      diagnose(ranks, {0, 1, false, {}}).message,
      "recv #3 (1024 float32, 4 KiB) from rank 2: rank 2 (local 0) on b has not met it: its last call was barrier "
      "#4; 2 ranks wait");
  EXPECT_TRUE(diagnose(ranks, {3, 4, false, {}})
                  .message.starts_with("recv #3 (1024 float32, 4 KiB) from rank 4: rank 4 (local 0) on c does not"));
}

TEST(Diagnosis, AMessageOfAnotherLengthIsItsSendersFault) {  // which has gone on to wait with the others
  const std::vector<RankState> ranks = {gone_on("rank 0 (a)", waiting_in(calls::Operation::recv, 4, 2), {}),
                                        here("rank 1 (b)", inside(calls::Operation::allreduce, 5)),
                                        here("rank 2 (c)", inside(calls::Operation::allreduce, 5))};
  EXPECT_EQ(diagnose(ranks, {0, 2, true, {}}).message,
            "recv #3 (1024 float32, 4 KiB) from rank 2: rank 2 (local 0) on c sends another message");
}

TEST(Diagnosis, AMessageToItselfIsNotMet) {
  const std::vector<RankState> ranks = {gone_on("rank 0 (a)", waiting_in(calls::Operation::recv, 4, 0), {}),
                                        here("rank 1 (b)", after(calls::Operation::barrier, 4))};
  EXPECT_EQ(
      diagnose(ranks, {0, 0, false, {}}).message,
      "recv #3 (1024 float32, 4 KiB) from rank 0: rank 0 (local 0) on a waits for itself: both directions must begin "
      "before either is waited for");
  EXPECT_EQ(diagnose(ranks, {0, 0, true, {}}).message,
            "recv #3 (1024 float32, 4 KiB) from rank 0: rank 0 (local 0) on a sends another message");
}

TEST(Diagnosis, WhoWaitsForARankInACollectiveWaitsForThoseItWaitsFor) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::gather, 5)),
                                        gone_on("rank 1 (a)", waiting_in(calls::Operation::recv, 5, 0), {}),
                                        absent("rank 2 (b)", Liveness::silent)};
  EXPECT_TRUE(diagnose(ranks, {1, 0, false, {}}).message.starts_with("gather #5 (1024 float32, 4 KiB): rank 2 "));
}

TEST(Diagnosis, NamesWhomAGroupOfMessagesWaitsFor) {  // it has sent to 2, and waits for what 0 is to send
  Activity messages = waiting_in(calls::Operation::send, 4, 2);
  messages.waits_for = 0;
  const std::vector<RankState> ranks = {here("rank 0 (a)", after(calls::Operation::barrier, 4)),
                                        gone_on("rank 1 (a)", messages, {}),
                                        here("rank 2 (b)", inside(calls::Operation::barrier, 5))};
  EXPECT_TRUE(diagnose(ranks, {2, calls::Watchdog::anyone, false, {}})
                  .message.starts_with("barrier #5: rank 0 (local 0) on a has not called it: "));
}

TEST(Diagnosis, NobodyIsMissing) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::allreduce, 5)),
                                        here("rank 1 (b)", inside(calls::Operation::allreduce, 5))};
  EXPECT_TRUE(
      diagnose(ranks, {0, 1, false, {}}).message.starts_with("allreduce #5 (1024 float32, 4 KiB): no rank is missing"));
}

TEST(Diagnosis, ARankThatHasFinalizedIsThroughFinalize) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::finalize, 6)),
                                        absent("rank 1 (a)", Liveness::left), absent("rank 2 (b)", Liveness::dead)};
  EXPECT_TRUE(diagnose(ranks, {0, 2, false, {}}).message.starts_with("finalize #6: rank 2 (local 0) on b is dead"));
}

TEST(Diagnosis, BeforeTheFirstCallWhoIsNotThereIsMissing) {
  const std::vector<RankState> ranks = {here("rank 0 (a)", inside(calls::Operation::init, 0)),
                                        here("rank 1 (a)", inside(calls::Operation::init, 0)),
                                        absent("rank 2 (b)", Liveness::dead), absent("rank 3 (b)", Liveness::unaware)};
  const Diagnosis diagnosis = diagnose(ranks, {0, 2, false, {}});
  EXPECT_EQ(diagnosis.code, Errc::peer);
  EXPECT_EQ(diagnosis.subject.rank, 2);
  EXPECT_EQ(diagnosis.message, "init: rank 2 (local 0) on b is dead; 2 ranks wait");
  EXPECT_EQ(diagnose(std::vector{ranks[0], ranks[3]}, {0, 1, false, {}}).message,
            "init: rank 3 (local 0) on b has not called it: it does not have this communicator (not yet, or not "
            "any more); 1 rank waits");
}

// ---- identity ----
using Variables = std::map<std::string, std::string, std::less<>>;

EnvironmentReader reader_of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}
Result<launch::ProcessIdentity> read(Variables variables) {
  return launch::read_process_identity(reader_of(std::move(variables)));
}

TEST(ProcessIdentity, NoLauncher) {
  const auto id = read({});
  ASSERT_TRUE(id);
  EXPECT_EQ(id->size, 1U);
}

TEST(ProcessIdentity, AStepOfSrun) {
  const auto id = read({{"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "8"},
                        {"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "1"},
                        {"PMI_RANK", "5"},
                        {"PMI_SIZE", "8"}});
  ASSERT_TRUE(id);
  EXPECT_EQ(id->rank, 5U);
  EXPECT_EQ(id->size, 8U);
  EXPECT_EQ(id->local_rank, 1U);
}

TEST(ProcessIdentity, ABatchScriptIsNoTaskOfItsJob) {
  const auto id = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(id);
  EXPECT_EQ(id->size, 1U);
}

TEST(ProcessIdentity, DisagreementNamesBothSources) {
  const auto id = read({{"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_NTASKS", "4"},
                        {"PMI_RANK", "2"}});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Errc::mismatch);
  EXPECT_NE(id.error().message.find("SLURM_PROCID=1"), std::string::npos);
  EXPECT_NE(id.error().message.find("PMI_RANK=2"), std::string::npos);
}

TEST(ProcessIdentity, UnderMpirunSlurmDescribesTheDaemons) {
  const auto id = read({{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "6"},
                        {"OMPI_UNIVERSE_SIZE", "6"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(id);
  EXPECT_EQ(id->rank, 3U);
  EXPECT_EQ(id->size, 6U);
}

TEST(ProcessIdentity, UnderTorchrunSlurmDescribesTheLaunchers) {
  const auto id = read({{"TORCHELASTIC_RUN_ID", "1"},
                        {"RANK", "7"},
                        {"WORLD_SIZE", "8"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(id);
  EXPECT_EQ(id->rank, 7U);
}

/// `base` with more variables, or with others.
Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}
std::string refusal(const Variables& variables) {
  const auto id = read(variables);
  return id ? "rank " + std::to_string(id->rank) + " of " + std::to_string(id->size) : id.error().message;
}

const Variables step = {{"SLURM_JOB_ID", "1"},   {"SLURM_STEP_ID", "7"}, {"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_PROCID", "1"},   {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "0"},
                        {"SLURM_TASK_PID", "90"}};
const Variables by_pmi2 = with(step, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "1.7"}});
const Variables by_pmix = with(step, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.1.7"}});
const Variables named = {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}};
const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables by_mpirun = with(open_mpi, {{"OMPI_UNIVERSE_SIZE", "4"}, {"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "77"}});
const Variables by_us = with(with(with(step, named), open_mpi), {{"AMLDIST_STAMP", "1.7 kind=mpi nodes=2"}});

struct Disagreement {
  std::string what;
  Variables base;
  std::string changed;
  std::string believed;  ///< the variable that it contradicts
};
void PrintTo(const Disagreement& trial, std::ostream* out) { *out << trial.what; }
class TwoSources : public ::testing::TestWithParam<Disagreement> {};

TEST_P(TwoSources, AreBothNamed) {
  const auto& [what, base, changed, believed] = GetParam();
  ASSERT_EQ(refusal(base), "rank 1 of 4");
  EXPECT_EQ(refusal(with(base, {{changed, "3"}})),
            believed + "=" + base.at(believed) + " but " + changed + "=3: unset the wrong one");
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, TwoSources,
    ::testing::Values(
        Disagreement{"SlurmPmi2", by_pmi2, "PMI_RANK", "SLURM_PROCID"},
        Disagreement{"SlurmPmi2Size", by_pmi2, "PMI_SIZE", "SLURM_NTASKS"},
        Disagreement{"SlurmPmix", by_pmix, "PMIX_RANK", "SLURM_PROCID"},
        Disagreement{"SlurmRank", with(step, named), "RANK", "SLURM_PROCID"},
        Disagreement{"SlurmSize", with(step, named), "WORLD_SIZE", "SLURM_NTASKS"},
        Disagreement{"SlurmLocalRank", with(step, named), "LOCAL_RANK", "SLURM_LOCALID"},
        Disagreement{"SlurmOpenMpi", with(step, open_mpi), "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"},
        Disagreement{"SlurmOpenMpiLocal", with(step, open_mpi), "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"},
        Disagreement{"OwnSlurm", by_us, "SLURM_PROCID", "RANK"},
        Disagreement{"OwnSlurmSize", by_us, "SLURM_NTASKS", "WORLD_SIZE"},
        Disagreement{"OwnPmi2", with(by_us, by_pmi2), "PMI_RANK", "RANK"},
        Disagreement{"OwnPmix", with(by_us, by_pmix), "PMIX_RANK", "RANK"},
        Disagreement{"OwnOpenMpi", by_us, "OMPI_COMM_WORLD_RANK", "RANK"},
        Disagreement{"OwnOpenMpiSize", by_us, "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"},
        Disagreement{"OwnOpenMpiLocal", by_us, "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"},
        Disagreement{"OwnOpenMpiLocalSize", by_us, "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"},
        Disagreement{"PlainOpenMpi", with(named, open_mpi), "OMPI_COMM_WORLD_RANK", "RANK"},
        Disagreement{"PlainOpenMpiLocal", with(named, open_mpi), "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"},
        Disagreement{"PlainPmi", with(named, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), "PMI_SIZE", "WORLD_SIZE"},
        Disagreement{"PlainPmix", with(named, {{"PMIX_RANK", "1"}}), "PMIX_RANK", "RANK"},
        Disagreement{"MpirunPmix", by_mpirun, "PMIX_RANK", "OMPI_COMM_WORLD_RANK"},
        Disagreement{"MpirunRank", with(by_mpirun, named), "RANK", "OMPI_COMM_WORLD_RANK"},
        Disagreement{"MpirunSize", with(by_mpirun, named), "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
        Disagreement{"MpirunLocalRank", with(by_mpirun, named), "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}),
    [](const auto& trial) { return trial.param.what; });

// What live environments held (Slurm 22.05, Open MPI 4.1): one launcher within another is no disagreement.
TEST(ProcessIdentity, MpirunWhoseDaemonsAreTasksOfAStep) {
  EXPECT_EQ(refusal(with(with(step, by_mpirun), {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})), "rank 1 of 4");
}

TEST(ProcessIdentity, MpirunInABatchScript) {
  EXPECT_EQ(refusal(with(by_mpirun, {{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})),
            "rank 1 of 4");
}

TEST(ProcessIdentity, AStepThatATaskOfMpirunStarted) {
  const Variables left =
      with(by_mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  for (const Variables& inner : {step, by_pmi2, by_pmix}) {
    const auto id = launch::read_process_identity(reader_of(with(left, inner)), 90);
    ASSERT_TRUE(id) << id.error().message;
    EXPECT_EQ(id->source, "Slurm");
    EXPECT_EQ(id->rank, 1U);
  }
}

TEST(ProcessIdentity, AStepWithinAStep) {  // started with --mpi=none, or without our option, by rank 3 of another
  EXPECT_EQ(refusal(with(step, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_JOBID", "1.6"}})), "rank 1 of 4");
  EXPECT_EQ(refusal(with(step, {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.1.6"}})), "rank 1 of 4");
  EXPECT_EQ(refusal(with(by_us, {{"AMLDIST_STAMP", "1.6 kind=mpi nodes=2"},
                                 {"RANK", "3"},
                                 {"WORLD_SIZE", "5"},
                                 {"OMPI_COMM_WORLD_RANK", "3"},
                                 {"OMPI_COMM_WORLD_SIZE", "5"}})),
            "rank 1 of 4");
}

TEST(ProcessIdentity, ThePmixOfAnOuterLauncherIsNotOurs) {
  const auto is_own = [](const Variables& variables, int pid) {
    const auto id = launch::read_process_identity(reader_of(variables), pid);
    return id && launch::has_own_pmix(reader_of(variables), *id);
  };
  EXPECT_TRUE(is_own(by_pmix, 90));
  EXPECT_TRUE(is_own(with(step, by_mpirun), 91));
  EXPECT_FALSE(is_own(step, 90));
  EXPECT_FALSE(is_own(with(step, by_mpirun), 90));
  EXPECT_FALSE(is_own(with(by_pmix, {{"PMIX_NAMESPACE", "slurm.pmix.1.6"}}), 90));
}

TEST(ProcessIdentity, MpirunWithinATask) {
  EXPECT_EQ(refusal(with(with(by_us, by_mpirun), {{"RANK", "0"}, {"WORLD_SIZE", "2"}})), "rank 1 of 4");
}

TEST(ProcessIdentity, ALauncherInAPerNodeStep) {  // such as DeepSpeed's: OMPI_* are those of its own task
  EXPECT_EQ(refusal({{"AMLDIST_STAMP", "1.7 kind=mpi nodes=2"},
                     {"AMLDIST_HIDDEN_SLURM_STEP_ID", "7"},
                     {"SLURM_PROCID", "0"},
                     {"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"RANK", "1"},
                     {"WORLD_SIZE", "4"}}),
            "rank 1 of 4");
}

TEST(ProcessIdentity, AComponentOfAHeterogeneousStep) {  // its stamp names the component's own job
  EXPECT_EQ(refusal(with(by_us,
                         {{"SLURM_HET_SIZE", "2"}, {"AMLDIST_STAMP", "2.7 kind=mpi nodes=2"}, {"SLURM_LOCALID", "1"}})),
            "rank 1 of 4");
}

TEST(ProcessIdentity, ANumberThatIsTooLargeIsANumber) {
  EXPECT_EQ(refusal({{"RANK", "1"}, {"WORLD_SIZE", "99999999999"}}),
            "WORLD_SIZE='99999999999' is out of range (at most 67108864)");
  EXPECT_EQ(refusal({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK='one' is not a number");
}

TEST(ProcessIdentity, HostileNumbersAreRefused) {
  EXPECT_FALSE(read({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(read({{"RANK", "4"}, {"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(read({{"RANK", "0x1"}, {"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(read({{"RANK", "1"}}));
  EXPECT_FALSE(read({{"RANK", "1"}, {"WORLD_SIZE", "99999999999999999999"}}));
}

}  // namespace
}  // namespace amldist::world
