#include "step/messages/failure_report.hpp"

#include <csignal>

#include "step/server/last_states.hpp"
#include "support.hpp"

namespace amldist::step::failure_report_test {
namespace {

constexpr std::uint64_t token = 0x00c0ffee00c0ffee;
constexpr std::uint32_t core_flag = 0x80;

constexpr std::uint32_t exited(std::uint32_t status) { return status << 8; }

FailureReport report(std::uint32_t rank = 2, std::uint32_t wait_status = SIGKILL) {
  return {FailureReport::Kind::failed, rank, 0, wait_status, 1234, "node2"};
}

std::string sentence(const std::vector<FailureReport>& reports, const RestOfStep& rest = {}, std::uint32_t tasks = 4) {
  FirstFailure failure(tasks);
  for (const FailureReport& each : reports) failure.take(each);
  if (!failure.stands()) return "";
  testing::expect_sentence(failure.record(rest).sentence());
  return failure.record(rest).sentence();
}

TEST(ReportChannel, ReadsBackWhatItWrites) {
  const ReportChannel channel{40123, {token, 0x5ca1ab1e5ca1ab1e}};
  EXPECT_EQ(channel.to_string(), "2;port=40123;token=00c0ffee00c0ffee5ca1ab1e5ca1ab1e");
  EXPECT_EQ(ReportChannel::parse(channel.to_string()), channel);
}

TEST(ReportChannel, RefusesEverythingElse) {
  const std::string good = ReportChannel{40123, {token, 1}}.to_string();
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(ReportChannel::parse(good.substr(0, length)));
  for (const std::string& bad : std::vector<std::string>{
           good + ";", good + "0", "1" + good.substr(1), "2;port=0;token=00c0ffee00c0ffee00c0ffee00c0ffee",
           "2;port=65536;token=00c0ffee00c0ffee00c0ffee00c0ffee", "2;port=-1;token=00c0ffee00c0ffee00c0ffee00c0ffee",
           "2;port=1;token=00C0FFEE00C0FFEE00c0ffee00c0ffee", "2;port=1;token=00c0ffee00c0ffee",
           "2;token=00c0ffee00c0ffee00c0ffee00c0ffee;port=1", std::string(100000, ';')}) {
    EXPECT_FALSE(ReportChannel::parse(bad)) << bad.substr(0, 60);
  }
}

TEST(FailureReport, ReadsBackWhatItWrites) {
  EXPECT_EQ(report().to_datagram(token), "aml-dist;1;00c0ffee00c0ffee;failed;2;0;9;1234;node2");
  EXPECT_EQ(FailureReport::parse(report().to_datagram(token), token), report());
  FailureReport refused = report();
  refused.kind = FailureReport::Kind::refused;
  EXPECT_EQ(FailureReport::parse(refused.to_datagram(token), token), refused);
}

TEST(FailureReport, AnotherTokenIsNotOurs) {
  EXPECT_FALSE(FailureReport::parse(report().to_datagram(token), token + 1));
}

TEST(FailureReport, EveryCutIsRefusedOrShortensTheHost) {
  const std::string good = report().to_datagram(token);
  for (std::size_t length = 0; length < good.size(); ++length) {
    const auto cut = FailureReport::parse(good.substr(0, length), token);
    if (!cut) continue;
    EXPECT_EQ(cut->host, report().host.substr(0, cut->host.size()));
  }
}

TEST(FailureReport, CarriesTheLastCall) {
  FailureReport telling = report();
  telling.last_call = "in allreduce #42 (1048576 float32, 4 MiB)";
  EXPECT_EQ(telling.to_datagram(token), report().to_datagram(token) + ";in allreduce #42 (1048576 float32, 4 MiB)");
  EXPECT_EQ(FailureReport::parse(telling.to_datagram(token), token), telling);
  telling.wait_status = exited(7);
  EXPECT_EQ(sentence({telling}),
            "first failure: rank 2 (local 0) on node2: exit status 7, 1.2 s after the start, in allreduce #42 "
            "(1048576 float32, 4 MiB)");
}

TEST(FailureReport, RefusesHostileDatagrams) {
  const std::string begin = "aml-dist;1;00c0ffee00c0ffee;";
  for (const std::string& bad :
       {std::string(), begin, begin + "failed;2;0;9;1234;", begin + "died;2;0;9;1234;node2",
        begin + "failed;-2;0;9;1234;node2", begin + "failed;99999999999;0;9;1234;node2",
        begin + "failed;2;0;65536;1234;node2", begin + "failed;2;0;9;99999999999999999999;node2",
        begin + "failed;2;0;9;1234;no de", begin + "failed;2;0;9;1234;\x1b[2J", begin + "failed;2;0;9;1234;node2;",
        begin + "failed;2;0;9;1234;node2\n", begin + "failed;2;0;9;1234;node2;in allreduce; #1",
        begin + "failed;2;0;9;1234;node2;in \x1b[2J", begin + "failed;2;0;9;1234;" + std::string(600, 'a'),
        std::string(70000, ';'), std::string(20, '\0')}) {
    EXPECT_FALSE(FailureReport::parse(bad, token)) << bad.substr(0, 80);
  }
}

TEST(DescribeEnd, SaysSignalsAndStatuses) {
  EXPECT_EQ(describe_end(SIGKILL), "signal 9 (SIGKILL)");
  EXPECT_EQ(describe_end(SIGABRT), "signal 6 (SIGABRT)");
  EXPECT_EQ(describe_end(SIGSEGV | core_flag), "signal 11 (SIGSEGV), core dumped");
  EXPECT_EQ(describe_end(40), "signal 40");
  EXPECT_EQ(describe_end(exited(7)), "exit status 7");
  EXPECT_EQ(describe_end(exited(134)), "exit status 134 (128 + SIGABRT)");
  EXPECT_EQ(describe_end(exited(137)), "exit status 137 (128 + SIGKILL)");
  EXPECT_EQ(describe_end(exited(128)), "exit status 128");
  EXPECT_EQ(describe_end(exited(255)), "exit status 255");
}

TEST(FirstFailure, NothingIsSaidWithoutAFailure) {
  EXPECT_EQ(sentence({}), "");
  EXPECT_EQ(sentence({report(2, 0)}), "");
}

TEST(FirstFailure, TheFirstToArriveCounts) {
  EXPECT_EQ(sentence({report(2, exited(7)), report(0, SIGTERM), report(1, SIGKILL)}),
            "first failure: rank 2 (local 0) on node2: exit status 7, 1.2 s after the start");
}

TEST(FirstFailure, ACauseCountsMoreThanItsConsequenceThatArrivedBeforeIt) {
  FailureReport survivor = report(3, exited(7)), killed = report(2, SIGKILL), later = report(1, SIGKILL);
  survivor.last_call = "in allreduce #6 (1048576 float32, 4 MiB) broken by another rank";
  killed.last_call = "after allreduce #5 (1048576 float32, 4 MiB)";
  const std::string cause = sentence({killed, survivor});
  EXPECT_TRUE(cause.starts_with("first failure: rank 2 ")) << cause;
  EXPECT_EQ(sentence({survivor, killed}), cause);
  EXPECT_EQ(sentence({survivor, killed, later}), cause) << "by arrival, among causes";
  EXPECT_TRUE(sentence({survivor}).starts_with("first failure: rank 3 "));
  survivor.last_call = "in allreduce #6 (1048576 float32, 4 MiB)";
  EXPECT_TRUE(sentence({survivor, killed}).starts_with("first failure: rank 3 ")) << "it may have failed by itself";
}

TEST(FirstFailure, WhoeverLeftWithoutMpiFinalizeCountsMoreThanThoseKilledForIt) {
  FailureReport left = report(2, 0), killed = report(3, SIGKILL);
  EXPECT_EQ(sentence({left, killed}).find("rank 2"), std::string::npos) << "it may have ended as it should";
  left.last_call = "after allreduce #10 (4 float32, 16 bytes)";
  EXPECT_EQ(FailureReport::parse(left.to_datagram(token), token), left);
  EXPECT_EQ(sentence({left}), "") << "nothing has failed";
  EXPECT_EQ(sentence({left, killed}),
            "first failure: rank 2 (local 0) on node2: exit status 0 without MPI_Finalize, 1.2 s after the start, "
            "after allreduce #10 (4 float32, 16 bytes)");
  EXPECT_TRUE(sentence({killed, left}).starts_with("first failure: rank 2 ")) << "its report came later";
  FailureReport asked = left;
  asked.elapsed_ms += 500;
  EXPECT_TRUE(sentence({killed, asked}).starts_with("first failure: rank 3 ")) << "it was asked to end";
  asked = left;
  asked.last_call = "in barrier #11";
  EXPECT_TRUE(sentence({asked, killed}).starts_with("first failure: rank 3 ")) << "by a signal";
  FailureReport failed = report(3, exited(14));
  EXPECT_TRUE(sentence({left, failed}).starts_with("first failure: rank 3 ")) << "it failed by itself";
  failed.last_call = "in barrier #11";
  EXPECT_TRUE(sentence({left, failed}).starts_with("first failure: rank 2 ")) << "it was in a call";
}

/// A program on libamldist may end without amldist_finalize, and nothing kills the others for that.
TEST(FirstFailure, WithoutMpiWhoeverLeftIsNoReasonForAKill) {
  FailureReport left = report(2, 0), killed = report(3, SIGKILL);
  left.last_call = "after allreduce #10 (4 float32, 16 bytes)";
  killed.last_call = "after allreduce #9 (4 float32, 16 bytes)";
  FirstFailure failure(4);
  failure.take(left);
  failure.take(killed);
  LastStates last(4);
  EXPECT_TRUE(last.has_mpi()) << "nothing is known";
  last.take("rank 2 4 2 gone amldist node2 0\n");
  EXPECT_FALSE(last.has_mpi());
  EXPECT_EQ(failure.record({.has_mpi = last.has_mpi()}).rank, 3U);
  FailureReport broken = report(1, exited(1));
  broken.last_call = "in allreduce #10 (4 float32, 16 bytes) broken by another rank";
  FirstFailure of_broken(4);
  of_broken.take(left);
  of_broken.take(broken);
  EXPECT_EQ(of_broken.record({.has_mpi = false}).rank, 1U) << "whom it waited for is not known";
}

TEST(FirstFailure, WhoeverAskedForTheEndOfAllIsTheCause) {
  FailureReport killed = report(0);
  killed.last_call = "in barrier #5";
  FailureReport asked = report(2);
  asked.last_call = "after barrier #4, and called MPI_Abort";
  for (const bool cause_comes_first : {false, true}) {
    FirstFailure first(4);
    first.take(cause_comes_first ? asked : killed);
    first.take(cause_comes_first ? killed : asked);
    EXPECT_EQ(first.record({}).rank, 2U);
  }
}

/// What srun would say, with what the recorders of some ranks showed: `waits` in call #5, or has left after #4.
std::string sentence_with(const std::vector<FailureReport>& reports, const std::vector<std::string>& states) {
  FirstFailure failure(4);
  for (const FailureReport& each : reports) failure.take(each);
  LastStates last(4);
  for (const std::string& each : states) last.take(each);
  EXPECT_EQ(last.size(), states.size());
  return failure.record({}, last.cause()).sentence();
}
std::string state_of(std::uint32_t rank, bool waits, unsigned bytes = 4096) {
  const std::string number = std::to_string(rank);
  const std::string call =
      waits ? "call 0 1 5 " + std::to_string(bytes) + " 7 0 -1 0 2 10 5\n" : "call 0 1 4 4096 7 0 -1 0 3 10 4\n";
  return "rank " + number + " 4 0 gone mpi node2 0\ncomm 9ae16a3b2f90404f " + number + " 4 " + (waits ? "5" : "4") +
         " 0 1 world\n" + call;
}
const std::vector<std::string> others_wait_for_2 = {state_of(0, true), state_of(1, true), state_of(2, false),
                                                    state_of(3, true)};

TEST(FirstFailure, TheRankForWhichTheOthersWaitedIsTheCauseWhateverArrivedFirst) {
  FailureReport innocent = report(1, SIGKILL), culprit = report(2, exited(7));
  innocent.last_call = "in allreduce #5 (1024 float32, 4 KiB)";
  EXPECT_TRUE(sentence_with({innocent, culprit}, others_wait_for_2).starts_with("first failure: rank 2 "));
  EXPECT_TRUE(sentence_with({innocent}, others_wait_for_2).starts_with("first failure: rank 1 "))
      << "rank 2 has not ended";
  innocent.wait_status = exited(15);  // its MPI noticed it
  EXPECT_TRUE(sentence_with({innocent, culprit}, others_wait_for_2).starts_with("first failure: rank 2 "));
  culprit.wait_status = SIGKILL;
  EXPECT_TRUE(sentence_with({innocent, culprit}, others_wait_for_2).starts_with("first failure: rank 1 "))
      << "rank 2 was only killed after it";
  culprit = report(2, 0);
  culprit.last_call = "after allreduce #4 (1024 float32, 4 KiB)";
  EXPECT_TRUE(sentence_with({innocent, culprit}, others_wait_for_2).starts_with("first failure: rank 2 "));
}

TEST(FirstFailure, ARankThatCrashedIsTheCauseThoughOthersHadNotCome) {
  FailureReport crashed = report(1, SIGSEGV);
  crashed.last_call = "in allreduce #5 (1024 float32, 4 KiB)";
  EXPECT_TRUE(sentence_with({crashed, report(2, SIGKILL)}, others_wait_for_2).starts_with("first failure: rank 1 "));
  EXPECT_TRUE(sentence_with({report(0, SIGKILL), crashed}, {}).starts_with("first failure: rank 1 ")) << "reaped later";
}

TEST(FirstFailure, AWrongCallIsTheCauseOfAnErrorInIt) {
  FailureReport noticed = report(1, exited(15));
  noticed.last_call = "in allreduce #5 (1024 float32, 4 KiB)";
  const std::vector<std::string> states = {state_of(0, true), state_of(1, true), state_of(2, true, 8192),
                                           state_of(3, true)};
  EXPECT_EQ(
      sentence_with({noticed, report(2, SIGKILL)}, states),
      "first failure: allreduce #5 (1024 float32, 4 KiB): rank 2 (local 0) on node2 called allreduce #5 (2048 "
      "float32, 8 KiB) instead; the first to fail because of it ended with exit status 15, 1.2 s after the start");
}

TEST(FirstFailure, ACallThatTheOthersHaveEndedWithoutIsTheCauseOfAnErrorInIt) {
  FailureReport alone = report(1, exited(1)), other = report(3, 0);
  alone.last_call = "in allreduce #5 (1024 float32, 4 KiB) broken by another rank";
  other.last_call = "after allreduce #4 (1024 float32, 4 KiB)";
  std::vector<std::string> states = {state_of(0, false), state_of(1, true), state_of(2, false), state_of(3, false)};
  for (std::string& each : states) {
    if (each.find("call 0 1 4 ") != std::string::npos) each.replace(each.find("gone"), 4, "exited");
  }
  EXPECT_EQ(sentence_with({other, alone}, states),
            "first failure: allreduce #5 (1024 float32, 4 KiB): rank 1 (local 0) on node2 is alone in it: the others "
            "have ended without it; the first to fail because of it ended with exit status 1, 1.2 s after the start");
  EXPECT_TRUE(sentence_with({other, alone}, {states[1], states[3]}).starts_with("first failure: rank 3 "))
      << "of two, either may be wrong";
}

/// The calls of a group whose ranks have all ended the wrong one, and failed in the next: nobody waits for anybody.
TEST(FirstFailure, OfAWrongCallThatAllHaveEndedTheRankIsNamedThatLibamldistHasFound) {
  const std::string said = "broadcast #1 (768 float32, 3 KiB): rank 1 (local 1) on node1 called it with root 1";
  const auto failed = [&](std::uint32_t rank, const std::string& wrong) {
    return "rank " + std::to_string(rank) + " 4 0 gone amldist node" + std::to_string(rank / 2) + " 0\n" + wrong +
           "comm 9ae16a3b2f90404f " + std::to_string(rank) + " 4 2 0 1 world\ncall 0 3 1 3072 7 0 0 0 3 10 4\n" +
           "call 0 3 2 3072 7 0 0 0 4 10 5\n";
  };
  FailureReport broken = report(2, exited(1));
  broken.last_call = "in broadcast #2 (768 float32, 3 KiB) broken by another rank";
  const std::vector<std::string> states = {failed(1, ""), failed(2, "wrong 1 " + said + "\n"),
                                           failed(3, "wrong 1 " + said + "\n")};
  EXPECT_EQ(
      sentence_with({broken}, states),
      "first failure: " + said + "; the first to fail because of it ended with exit status 1, 1.2 s after the start");
  EXPECT_TRUE(sentence_with({broken}, {states[1], failed(3, "wrong 2 rank 2\n")})
                  .starts_with("first failure: rank 2 (local 0)"))
      << "they contradict each other";
  LastStates last(4);
  for (const std::string& each : states) last.take(each);
  EXPECT_EQ(last.cause(), (RecordedCause{{1}, "node0", "amldist", said}));
  LastStates of_two(4);
  of_two.take(failed(3, "wrong - ranks 0 and 1\n"));
  EXPECT_EQ(of_two.cause(), (RecordedCause{{}, "", "amldist", "ranks 0 and 1"}));
  for (const std::uint32_t rank : {0U, 1U}) of_two.take(state_of(rank, true));
  of_two.take(state_of(2, false));
  EXPECT_EQ(of_two.cause(), (RecordedCause{{}, "", "amldist", "ranks 0 and 1"})) << "rank 2 may have died of it";
  of_two.take(state_of(3, true, 8192));
  EXPECT_EQ(of_two.cause()->ranks, std::vector<std::uint32_t>{3}) << "the recorders of all tell more";
}

TEST(FirstFailure, WhoeverLeftBeforeAMessageIsTheCauseAndNobodyElseWhoHasEnded) {
  const auto ended = [](std::uint32_t rank, const char* word, const char* call) {
    const std::string number = std::to_string(rank);
    return "rank " + number + " 4 0 " + word + " amldist node2 0\ncomm 9ae16a3b2f90404f " + number +
           " 4 0 0 1 world\ncall 0 " + call;
  };
  FailureReport done = report(0, 0), left = report(2, 0), broken = report(3, exited(1));
  done.last_call = left.last_call = "after send #4 (256 float32, 1 KiB) to rank 1";
  broken.last_call = "in recv #5 (256 float32, 1 KiB) from rank 2 broken by another rank";
  const std::vector<std::string> states = {ended(0, "exited", "11 4 1024 7 0 1 0 3 10 4\n"),
                                           ended(2, "exited", "11 4 1024 7 0 3 0 3 10 4\n"),
                                           ended(3, "gone", "12 5 1024 7 0 2 0 4 10 5\n")};
  const std::string told = sentence_with({done, left, broken}, states);
  EXPECT_TRUE(told.starts_with("first failure: rank 2 (local 0) on node2: exit status 0 without amldist_finalize"))
      << told;
}

TEST(FirstFailure, WhoeverLeftBeforeItsFirstCallIsTheCauseThatTheOthersFailed) {
  const auto state = [](std::uint32_t rank, const char* word, const char* entered, const char* call) {
    const std::string number = std::to_string(rank);
    return "rank " + number + " 4 0 " + word + " amldist node2 0\ncomm 9ae16a3b2f90404f " + number + " 4 " + entered +
           " 0 1 world\n" + call;
  };
  const char* const failed = "call 0 1 1 3072 7 0 -1 0 4 10 1\n";
  FailureReport left = report(2, 0), broken = report(1, exited(1));
  left.last_call = "before its first call";
  broken.last_call = "in allreduce #1 (768 float32, 3 KiB) broken by another rank";
  EXPECT_EQ(FailureReport::parse(left.to_datagram(token), token), left);
  const std::vector<std::string> states = {state(0, "gone", "1", failed), state(1, "gone", "1", failed),
                                           state(2, "exited", "0", "")};
  EXPECT_EQ(sentence_with({broken, left}, states),
            "first failure: rank 2 (local 0) on node2: exit status 0 without amldist_finalize, 1.2 s after the start, "
            "before its first call");
}

/// With os._exit(0), say. Those of programs that all end so are there, too, and say nothing of who failed.
TEST(FirstFailure, WhoeverLeftPastPythonsEndIsTheCauseOnlyWhereOthersWaitedForIt) {
  const auto state = [](std::uint32_t rank, const char* word, const char* entered, const char* call) {
    const std::string number = std::to_string(rank);
    return "rank " + number + " 4 0 " + word + " torch node2 0\ncomm 9ae16a3b2f90404f " + number + " 4 " + entered +
           " 0 1 default_pg\n" + call;
  };
  const char* const ended = "call 0 1 5 3072 7 0 -1 0 3 10 5\n";
  const char* const failed = "call 0 1 6 3072 7 0 -1 0 4 10 6\n";
  FailureReport left = report(2, 0), broken = report(1, exited(1));
  left.last_call = "after allreduce #5 (768 float32, 3 KiB)";
  broken.last_call = "in allreduce #6 (768 float32, 3 KiB)";
  const std::vector<std::string> waited = {state(1, "gone", "6", failed), state(2, "exited", "5", ended)};
  EXPECT_EQ(sentence_with({broken, left}, waited),
            "first failure: rank 2 (local 0) on node2: exit status 0 without destroy_process_group, 1.2 s after the "
            "start, after allreduce #5 (768 float32, 3 KiB)");
  broken.last_call = "after allreduce #5 (768 float32, 3 KiB)";
  const std::vector<std::string> done = {state(1, "gone", "5", ended), state(2, "exited", "5", ended)};
  EXPECT_TRUE(sentence_with({left, broken}, done).starts_with("first failure: rank 1 ")) << "which failed by itself";
}

TEST(FirstFailure, WhoeverGotAMessageThatWasTooLongIsNotSaidToBeWrong) {
  FailureReport failed = report(2, exited(1));
  failed.last_call = "in broadcast #7 (256 float32, 1 KiB), where a message was too long";
  EXPECT_EQ(FailureReport::parse(failed.to_datagram(token), token), failed);
  EXPECT_EQ(sentence({failed}),
            "first failure: rank 2 (local 0) on node2: exit status 1, 1.2 s after the start, in broadcast #7 (256 "
            "float32, 1 KiB), where a message was too long; nothing recorded tells whose call is wrong");
}

TEST(FirstFailure, OfCallsThatDoNotMatchBothAreToldWhereEitherMayBeWrong) {
  const auto waits = [](std::uint32_t rank, const char* bytes) {
    const std::string number = std::to_string(rank);
    return "rank " + number + " 4 0 gone mpi node2 0\ncomm 9ae16a3b2f90404f " + number + " 2 5 0 1 two\ncall 0 1 5 " +
           bytes + " 7 0 -1 0 2 10 5\n";
  };
  FailureReport noticed = report(1, exited(15)), left = report(3, 0);
  noticed.last_call = "in allreduce #5 (1024 float32, 4 KiB)";
  left.last_call = "after allreduce #4 (1024 float32, 4 KiB)";
  EXPECT_EQ(
      sentence_with({left, noticed}, {waits(0, "8192"), waits(1, "4096")}),
      "first failure: call #5 of group 'two': rank 0 on node2 called allreduce #5 (2048 float32, 8 KiB), rank 1 on "
      "node2 called allreduce #5 (1024 float32, 4 KiB); nothing recorded tells which of them is wrong; the first "
      "to fail because of it ended with exit status 15, 1.2 s after the start");
}

TEST(LastStates, KeepNothingElse) {
  LastStates last(4);
  last.take("rank 9 4 0 gone mpi node2 0\n");
  last.take("anything");
  EXPECT_EQ(last.size(), 0U);
  EXPECT_EQ(last.cause(), std::nullopt);
}

TEST(FirstFailure, ARefusedStepAddsNoLine) {
  FailureReport refused = report();
  refused.kind = FailureReport::Kind::refused;
  EXPECT_EQ(sentence({refused, report()}), "");
  EXPECT_EQ(sentence({report(), refused}), "");
}

TEST(FirstFailure, AdvisesOnlyWhereItHelps) {
  const std::string advice = "; the others may wait for it: srun --kill-on-bad-exit would end the step";
  EXPECT_TRUE(sentence({report(2, exited(7))}, {true, false}).ends_with(advice));
  EXPECT_TRUE(sentence({report(2, exited(7))}, {true, true}).ends_with("after the start"));
  EXPECT_TRUE(sentence({report(2, exited(7))}, {false, false}).ends_with("after the start"));
  const std::vector all{report(0, exited(1)), report(1, exited(2)), report(2, exited(3)), report(3, exited(4))};
  EXPECT_TRUE(sentence(all, {true, false}).ends_with("after the start")) << "srun has yet to see their ends";
  EXPECT_TRUE(
      sentence({report(2, SIGKILL)}).ends_with("; SIGKILL comes from outside: no memory left, or a cancelled step"));
}

TEST(FirstFailure, SaysWhenAllTasksEndedAlike) {
  const auto all = [](std::uint32_t status) {
    return std::vector{report(3, status), report(3, status), report(1, status), report(0, status), report(2, status)};
  };
  EXPECT_TRUE(sentence(all(exited(1))).ends_with("start; all 4 tasks ended this way"));
  EXPECT_TRUE(sentence(all(SIGKILL)).ends_with("; all 4 tasks ended this way, as after scancel"));
  EXPECT_TRUE(sentence(all(SIGTERM), {false, true}).ends_with("after the start")) << "Slurm's own victims";
  auto one_less = all(exited(1));
  one_less.pop_back();
  EXPECT_TRUE(sentence(one_less).ends_with("after the start")) << "two datagrams from one rank count once";
}

/// "scancel --signal=KILL": a task whose call was broken before it was killed, too, may be reported first.
TEST(FirstFailure, OfTasksThatEndAlikeDoesNotDependOnTheOrderOfReports) {
  FailureReport broken = report(0);
  broken.last_call = "in allreduce #6 (1048576 float32, 4 MiB) broken by another rank";
  const std::vector<FailureReport> late = {report(1), broken, report(2), report(3)};
  const std::vector<FailureReport> early = {broken, report(1), report(2), report(3)};
  for (const auto& reports : {late, early}) {
    FirstFailure failure(4);
    for (const FailureReport& each : reports) failure.take(each);
    const EndRecord record = failure.record({});
    EXPECT_EQ(record.cause, EndRecord::Cause::cancelled);
    EXPECT_EQ(record.rank, 1U);
    EXPECT_TRUE(record.evidence.ends_with("; all 4 tasks ended this way, as after scancel")) << record.evidence;
  }
}

/// scancel kills all processes of a step: a shell may live long enough to tell of its command's end.
TEST(FirstFailure, AShellThatToldOfItsCommandsKillEndedAsTheOthers) {
  const auto told = exited(128 + SIGKILL);
  for (const auto& first : {report(0, told), report(0, SIGKILL)}) {
    FirstFailure failure(3);
    for (const FailureReport& each : {first, report(1, SIGKILL), report(2, told)}) failure.take(each);
    EXPECT_EQ(failure.record({}).cause, EndRecord::Cause::cancelled);
  }
  FirstFailure programs_own(2);
  for (const FailureReport& each : {report(0, told), report(1, told)}) programs_own.take(each);
  EXPECT_EQ(programs_own.record({}).cause, EndRecord::Cause::rank_exit) << "nobody was seen to be killed";
}

TEST(FirstFailure, RanksBeyondTheStepAreNotOurs) {
  EXPECT_EQ(sentence({report(99, exited(1))}, {}, 2), "");
  EXPECT_EQ(sentence({report(99, exited(1))}, {}, 0),
            "first failure: rank 99 (local 0) on node2: exit status 1, 1.2 s after the start")
      << "the size is not always known";
}

TEST(FirstFailure, TimesAreForReaders) {
  const auto after = [](std::uint64_t milliseconds) {
    FailureReport each = report(0, exited(1));
    each.elapsed_ms = milliseconds;
    return sentence({each});
  };
  EXPECT_TRUE(after(0).ends_with(", 0.0 s after the start"));
  EXPECT_TRUE(after(99999).ends_with(", 99.9 s after the start"));
  EXPECT_TRUE(after(100000).ends_with(", 100 s after the start"));
  EXPECT_TRUE(after(5999999).ends_with(", 99 min after the start"));
  EXPECT_TRUE(after(7500000).ends_with(", 2 h 5 min after the start"));
}

}  // namespace
}  // namespace amldist::step::failure_report_test
