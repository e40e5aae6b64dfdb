#include "step/server/roll_call.hpp"

#include "support.hpp"

namespace amldist::step::roll_call_test {
namespace {

using namespace std::chrono_literals;
using enum NodePresence;

constexpr Clock::time_point start{};

TEST(RollCall, IsCompleteWhenEveryNodeHasReportedOnceOrMore) {
  RollCall roll({"node1", "node2", "node2"}, start);
  EXPECT_TRUE(roll.take("node1", start));
  EXPECT_TRUE(roll.take("node1", start + 1s)) << "again";
  EXPECT_FALSE(roll.is_complete());
  EXPECT_FALSE(roll.take("node3", start)) << "not of this step";
  EXPECT_TRUE(roll.take("node2", start));
  EXPECT_TRUE(roll.is_complete());
  EXPECT_FALSE(roll.due());
  EXPECT_FALSE(roll.verdict(start + 1h));
}

TEST(RollCall, AsksAboutAFewNodesOnceTheOthersAreQuiet) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 10'000; ++i) hosts.push_back("node" + std::to_string(i));
  RollCall roll(hosts, start);
  for (int i = 0; i < 9'000; ++i) EXPECT_TRUE(roll.take(hosts.at(static_cast<std::size_t>(i)), start + 500ms));
  EXPECT_TRUE(roll.to_ask(start + 1400ms).empty());
  EXPECT_EQ(roll.due(), start + 1500ms);
  EXPECT_EQ(roll.to_ask(start + 1500ms).size(), 4U);
  EXPECT_TRUE(roll.to_ask(start + 2s).empty()) << "once a second";
  EXPECT_EQ(roll.to_ask(start + 2500ms).size(), 4U);
}

/// An answer may take two seconds, in which srun hears no node.
TEST(RollCall, PausesAfterTheLastAnswer) {
  RollCall roll({"node1", "node2"}, start);
  EXPECT_EQ(roll.to_ask(start + 1s).size(), 2U);
  roll.note("node1", starting, start + 3s);
  roll.note("node2", starting, start + 5s);
  EXPECT_TRUE(roll.to_ask(start + 5900ms).empty());
  EXPECT_EQ(roll.to_ask(start + 6s).size(), 2U);
}

/// srun looks after each report. Work that grew with the square of the nodes would take this test to its time limit.
TEST(RollCall, TakesAHundredThousandNodesOneByOne) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 100'000; ++i) hosts.push_back("node" + std::to_string(i));
  RollCall roll(hosts, start);
  for (const std::string& host : roll.to_ask(start + 2s)) roll.note(host, in_prolog, start + 2s);
  for (const std::string& host : hosts) {
    EXPECT_TRUE(roll.take(host, start + 3s));
    EXPECT_FALSE(roll.verdict(start + 3s));
  }
  EXPECT_TRUE(roll.is_complete());
}

TEST(RollCall, HasPatienceWithALargeEnvironment) {
  for (const auto& [variables, patience] : {std::pair(300U, 8s), {10'000U, 58s}, {4'000'000'000U, 600s}}) {
    RollCall roll({"node1"}, start, variables);
    roll.note("node1", absent, start);
    EXPECT_FALSE(roll.verdict(start + patience - 1ms)) << variables;
    EXPECT_TRUE(roll.verdict(start + patience)) << variables;
  }
}

TEST(RollCall, JudgesANodeByWhatSlurmSaysAgainAndAgain) {
  struct Case {
    const char* what;
    NodePresence first;
    NodePresence then;
    std::chrono::seconds blamed_after;  ///< 0: never within an hour but for the prolog's limit
  };
  for (const Case& each :
       {Case{"tasks run", has_started, has_started, 2s}, Case{"tasks have run and ended", has_started, absent, 2s},
        Case{"the step is not there, or no more", absent, absent, 8s},
        Case{"a prolog may run", in_prolog, in_prolog, 600s}, Case{"the step begins late", absent, starting, 0s},
        Case{"another plugin works", starting, starting, 0s}, Case{"slurmd does not answer", unknown, unknown, 0s},
        Case{"slurmd answers now and then", absent, unknown, 0s}}) {
    SCOPED_TRACE(each.what);
    RollCall roll({"node1", "node2"}, start);
    EXPECT_TRUE(roll.take("node1", start));
    roll.note("node2", each.first, start);
    roll.note("node2", each.then, start + 1s);
    if (each.blamed_after == 0s) {
      EXPECT_FALSE(roll.verdict(start + 1h));
      continue;
    }
    EXPECT_FALSE(roll.verdict(start + each.blamed_after - 1ms));
    EXPECT_TRUE(roll.verdict(start + each.blamed_after));
    EXPECT_TRUE(roll.take("node2", start + each.blamed_after)) << "late, but healthy";
    EXPECT_FALSE(roll.verdict(start + each.blamed_after));
  }
}

TEST(RollCall, SaysWhatIsKnown) {
  RollCall roll({"node1", "node2", "node3"}, start);
  roll.note("node2", has_started, start);
  EXPECT_EQ(roll.verdict(start + 2s)->sentence,
            "node2 started its tasks without aml-dist (its plugstack.conf does not load the plugin, or UDP from there "
            "does not reach srun): the step is ended");
  EXPECT_TRUE(roll.take("node1", start));
  EXPECT_EQ(
      roll.verdict(start + 2s)->sentence,
      "node2 started its tasks without aml-dist (its plugstack.conf does not load the plugin): the step is ended");
  roll.note("node3", absent, start);
  EXPECT_EQ(roll.verdict(start + 8s)->sentence, roll.verdict_at_end().sentence);
  EXPECT_EQ(roll.verdict_at_end().nodes, (std::vector<std::string>{"node2", "node3"}));
  EXPECT_EQ(roll.verdict_at_end().sentence,
            "node2, node3 started their tasks without aml-dist, or could not start them (their plugstack.conf does not "
            "load the plugin, or the plugin's file is missing there): the step is ended");
}

}  // namespace
}  // namespace amldist::step::roll_call_test
