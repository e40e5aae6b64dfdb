// The decisions of `aml-dist keep`, as a table.
#include "aml_dist/keep/keep_policy.hpp"

#include <gtest/gtest.h>

namespace amldist::keep::keep_policy_test {
namespace {

using enum Cause;
using Names = std::vector<std::string>;

const Nodes two_spares = {{"a", "b", "c"}, {"x", "y"}};
const Nodes no_spares = {{"a", "b", "c"}, {}};

/// A rank's fault; each start runs for five minutes.
Start fault(const std::string& node, const std::string& failure = "rank_exit 7", std::optional<bool> advanced = {}) {
  return {.cause = rank_exit,
          .node = node,
          .failure = failure,
          .evidence = "it failed",
          .status = 143,
          .rank_status = 7,
          .ran = 300,
          .advanced = advanced};
}

Start of_node(const std::string& node, Cause cause = node_down) {
  return {.cause = cause, .blamed = {node}, .evidence = node + " is gone", .status = 1, .ran = 300};
}

Start ended(Cause cause, int status = 1) { return {.cause = cause, .evidence = "why", .status = status, .ran = 300}; }

Start after(Start start, std::int64_t ran, std::int64_t at = 0) {
  start.ran = ran;
  start.ended = at;
  return start;
}

/// Node b is drained, and a rank on `node` exits.
Start drained_under(const std::string& node, int rank_status) {
  Start start = of_node("b");
  start.node = node;
  start.rank_status = rank_status;
  return start;
}

Start ended_without_progress(Cause cause) {
  Start start = ended(cause);
  start.advanced = false;
  return start;
}

Start unstarted() {
  return {.cause = unknown, .evidence = "srun ended with status 1 and started no step", .status = 1, .ran = 1};
}

Start at_end(Start start) {
  start.at_limit = true;
  return start;
}

struct Case {
  const char* name;
  Limits limits;
  std::vector<Start> history;
  Nodes nodes;
  Action action;
  Names excluded;
  const char* says;  ///< part of the sentence
};

TEST(KeepPolicy, DecidesByTheTable) {
  const Limits five = {.retries = 5};
  const Limits fewer = {.retries = 5, .min_nodes = 2};
  const Limits queue = {.retries = 5, .requeue = true};
  const Limits at_limit = {.retries = 1, .requeue_at_limit = true};
  const Limits chosen = {.retries = 5, .no_restart_on = {7}};
  const Limits gone_too = {.retries = 5, .no_restart_on = {1}};
  const std::vector<Case> cases = {
      {"well", five, {ended(done, 0)}, two_spares, Action::end, {}, ""},
      // At the time limit.
      {"at the limit", at_limit, {at_end(ended(done, 0))}, two_spares, Action::requeue, {}, "goes back to the queue"},
      {"not wanted", five, {at_end(ended(done, 0))}, two_spares, Action::end, {}, ""},
      {"before", at_limit, {ended(done, 0)}, two_spares, Action::end, {}, ""},
      {"failed", at_limit, {at_end(fault("b"))}, two_spares, Action::restart, {}, "again on the same nodes"},
      {"free",
       at_limit,
       {at_end(ended(done, 0)), at_end(ended(done, 0)), fault("b")},
       two_spares,
       Action::restart,
       {},
       ""},
      {"preemptions are free",
       at_limit,
       {ended(preempted), ended(preempted), fault("b")},
       two_spares,
       Action::restart,
       {},
       "again on the same nodes"},
      // At once.
      {"refused", five, {ended(refused)}, two_spares, Action::end, {}, "not started again: refused, why"},
      {"cancelled", five, {ended(cancelled)}, two_spares, Action::end, {}, "not started again: cancelled"},
      {"time limit", five, {ended(time_limit)}, two_spares, Action::end, {}, "not started again: time_limit"},
      {"preempted", five, {ended(preempted)}, two_spares, Action::end, {}, "not started again: preempted"},
      {"chosen by srun", chosen, {ended(unknown, 7)}, two_spares, Action::end, {}, "status 7 is in --no-restart-on"},
      {"chosen", chosen, {fault("b")}, two_spares, Action::end, {}, "status 7 is in --no-restart-on"},
      {"chosen, but a node is gone", gone_too, {of_node("b")}, two_spares, Action::swap, {"b"}, "a spare"},
      {"chosen on the node that is drained",
       chosen,
       {drained_under("b", 7)},
       two_spares,
       Action::end,
       {},
       "status 7 is in"},
      {"chosen on another node", chosen, {drained_under("c", 7)}, two_spares, Action::swap, {"b"}, "a spare"},
      // No step began.
      {"slurmctld is away",
       five,
       {unstarted(), unstarted(), unstarted()},
       two_spares,
       Action::restart,
       {},
       "started no step: again on the same nodes"},
      {"preempted before it saved",
       five,
       {ended_without_progress(preempted), fault("b", "it failed", false)},
       two_spares,
       Action::restart,
       {},
       "again on the same nodes"},
      {"no progress before and after srun started no step",
       five,
       {fault("b", "it failed", false), unstarted(), fault("c", "another", false)},
       two_spares,
       Action::end,
       {},
       "no progress in two starts"},
      // The node's fault.
      {"down", five, {of_node("b")}, two_spares, Action::swap, {"b"}, "b is gone: a spare takes the place of b"},
      {"sick", five, {of_node("b", node_unhealthy)}, two_spares, Action::swap, {"b"}, "a spare"},
      {"link", five, {of_node("b", link)}, two_spares, Action::swap, {"b"}, "a spare"},
      {"plugin", five, {of_node("b", plugin_missing)}, two_spares, Action::swap, {"b"}, "a spare"},
      {"launch", five, {of_node("b", launch_failed)}, two_spares, Action::swap, {"b"}, "a spare"},
      {"two",
       five,
       {{.cause = node_down, .blamed = {"a", "c"}, .ran = 300}},
       two_spares,
       Action::swap,
       {"a", "c"},
       "the place of a, c"},
      {"twice", five, {of_node("b"), of_node("x")}, {{"a", "x", "c"}, {"y"}}, Action::swap, {"x"}, "a spare"},
      {"fewer", fewer, {of_node("b")}, no_spares, Action::fewer, {"b"}, "it goes on with 2 nodes (--min-nodes=2)"},
      {"too few",
       fewer,
       {{.cause = node_down, .blamed = {"a", "c"}, .ran = 300}},
       no_spares,
       Action::end,
       {"a", "c"},
       "no spare is left: give"},
      {"queue", queue, {of_node("b")}, no_spares, Action::requeue, {"b"}, "back to the queue, without b"},
      {"no spare", five, {of_node("b")}, no_spares, Action::end, {"b"}, "no spare is left: give --spares"},
      // A rank's fault.
      {"once", five, {fault("b")}, two_spares, Action::restart, {}, "it failed: again on the same nodes"},
      {"unknown launch", five, {ended(launch_failed)}, two_spares, Action::restart, {}, "why: again"},
      {"other failure elsewhere", five, {fault("b"), fault("c", "other")}, two_spares, Action::restart, {}, "again"},
      {"same node", five, {fault("b"), fault("b")}, two_spares, Action::swap, {"b"}, "b is suspected"},
      {"same node, other failure",
       five,
       {fault("b"), fault("b", "other")},
       two_spares,
       Action::swap,
       {"b"},
       "b is suspected"},
      {"hangs twice",
       five,
       {after(fault("b", "hang"), 300), fault("b", "hang")},
       two_spares,
       Action::swap,
       {"b"},
       "b is suspected"},
      {"suspected, queue", queue, {fault("b"), fault("b")}, no_spares, Action::requeue, {"b"}, "back to the queue"},
      {"program",
       five,
       {fault("b"), fault("c")},
       two_spares,
       Action::end,
       {},
       "the program's own fault: it ended in the same way on other nodes too"},
      {"program on the spare",
       five,
       {fault("b"), fault("b"), fault("x")},
       {{"a", "x", "c"}, {"y"}},
       Action::end,
       {},
       "the program's own fault"},
      {"program without a node",
       five,
       {fault(""), fault(""), fault("")},
       two_spares,
       Action::end,
       {},
       "in the same way three times"},
      {"twice without a node", five, {fault(""), fault("")}, two_spares, Action::restart, {}, "again"},
      {"node's fault between",
       five,
       {fault("b"), of_node("c"), fault("b")},
       two_spares,
       Action::swap,
       {"b"},
       "b is suspected"},
      // A start of use ends what counts together.
      {"long ago", five, {fault("b"), after(fault("c"), 3600)}, two_spares, Action::restart, {}, "again"},
      {"before a long start",
       five,
       {after(fault("b"), 7200), fault("b")},
       two_spares,
       Action::swap,
       {"b"},
       "b is suspected"},
      {"advanced", five, {fault("b"), fault("c", "rank_exit 7", true)}, two_spares, Action::restart, {}, "again"},
      // No progress.
      {"stuck",
       five,
       {fault("a", "1", false), fault("b", "2", false)},
       two_spares,
       Action::end,
       {},
       "no progress in two starts"},
      {"stuck around a node's fault",
       five,
       {fault("a", "1", false), of_node("c"), fault("b", "2", false)},
       two_spares,
       Action::end,
       {},
       "no progress"},
      {"stuck once", five, {fault("a", "1", true), fault("b", "2", false)}, two_spares, Action::restart, {}, "again"},
      {"a node's fault is not the program's",
       five,
       {of_node("a"), of_node("b")},
       two_spares,
       Action::swap,
       {"b"},
       "a spare"},
      // Budget.
      {"no retries",
       {.retries = 0},
       {fault("b")},
       two_spares,
       Action::end,
       {},
       "it failed; not started again: there are no retries"},
      {"used",
       {.retries = 1},
       {fault("b"), of_node("c")},
       two_spares,
       Action::end,
       {},
       "all 1 restart of --retries are used"},
      {"an hour's",
       {.retries = 9, .per_hour = 1},
       {after(fault("b"), 300, 1000), after(fault("b", "2"), 300, 2000)},
       two_spares,
       Action::end,
       {},
       "--per-hour"},
      {"the hour before",
       {.retries = 9, .per_hour = 1},
       {after(fault("b"), 300, 1000), after(fault("a", "2"), 300, 5000)},
       two_spares,
       Action::restart,
       {},
       "again"},
  };
  for (const Case& each : cases) {
    const Decision decision = decide(each.limits, each.history, each.nodes);
    EXPECT_EQ(to_string(decision.action), to_string(each.action)) << each.name;
    EXPECT_EQ(decision.excluded, each.excluded) << each.name;
    EXPECT_NE(decision.sentence.find(each.says), std::string::npos) << each.name << ": " << decision.sentence;
    EXPECT_EQ(decision.sentence.empty(), each.history.back().cause == done && each.action == Action::end) << each.name;
  }
}

TEST(KeepPolicy, NeverStorms) {
  std::vector<Start> history;
  std::vector<std::int64_t> waits;
  for (int i = 0; i < 10; ++i) {
    history.push_back(after(of_node("b"), 2));
    waits.push_back(decide({.retries = 100}, history, two_spares).wait.count());
  }
  EXPECT_EQ(waits, (std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 60, 60, 60, 60}));
  history.push_back(after(of_node("b"), 60));
  EXPECT_EQ(decide({.retries = 100}, history, two_spares).wait.count(), 0) << "after a start that was not short";
}

TEST(KeepPolicy, KnowsTheSameFailureAgain) {
  const auto exit = [](const std::string& evidence) {
    return failure_of({.cause = rank_exit, .rank = 2, .node = "node3", .status = 1, .evidence = evidence});
  };
  EXPECT_EQ(exit("rank 2 (local 0) on node3: exit status 1, 3.1 s after the start"), "rank_exit 1 : exit status #");
  EXPECT_EQ(exit("rank 2 (local 0) on node3: exit status 1, 3.1 s after the start; all 4 tasks ended this way"),
            exit("rank 15 (local 7) on node3: exit status 1, 2 h 5 min after the start"));
  EXPECT_EQ(
      exit("rank 2 (local 0) on node3: exit status 1, 67.0 s after the start, after allreduce #651 (8 float64)"),
      exit("rank 0 (local 0) on node3: exit status 1, 0.2 s after the start, after broadcast #1 (9 float64); all 3 "
           "tasks ended this way"))
      << "how far it had come";
  EXPECT_EQ(exit("rank 2 (local 0) on node3: exit status 1: KeyError: step 41 at a.py:7 in f, 3.1 s after the start"),
            exit("rank 0 (local 0) on node3: exit status 1: KeyError: step 7 at a.py:7 in f, 5.0 s after the start"));
  EXPECT_NE(exit("rank 2 (local 0) on node3: exit status 1: KeyError: 'a', 3.1 s after the start"),
            exit("rank 2 (local 0) on node3: exit status 1: ValueError: 'a', 3.1 s after the start"));
  const auto hang = [](const std::string& node, const std::string& evidence) {
    return failure_of({.cause = Cause::hang, .rank = 2, .node = node, .status = 75, .evidence = evidence});
  };
  EXPECT_EQ(
      hang("n1", "allreduce #41 of group 'dp': rank 2 (local 0) on n1 has not called it for 60 s; its stack is in F"),
      hang("n2", "allreduce #7 of group 'dp': rank 4 (local 0) on n2 has not called it for 61 s"));
  EXPECT_NE(failure_of({.cause = rank_signal, .signal = 9}), failure_of({.cause = rank_signal, .signal = 11}));
  EXPECT_EQ(failure_of({}), "unknown 0");
}

TEST(KeepPolicy, PutsASpareInThePlaceOfANode) {
  EXPECT_EQ(without(two_spares, Names{"b"}), (Names{"a", "x", "c"}));
  EXPECT_EQ(without(two_spares, Names{"a", "c"}), (Names{"x", "b", "y"}));
  EXPECT_EQ(without(two_spares, Names{"b", "x"}), (Names{"a", "y", "c"}));
  EXPECT_EQ(without(no_spares, Names{"b"}), (Names{"a", "c"}));
  EXPECT_EQ(without(two_spares, Names{"z"}), two_spares.step);
}

}  // namespace
}  // namespace amldist::keep::keep_policy_test
