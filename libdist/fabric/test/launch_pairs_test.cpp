// The writes between the nodes before a step's tasks start: who meets whom, how the texts travel over srun, and what
// comes of it; with up to 1,024 simulated nodes.
#include "fabric/between_nodes/launch_pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "fabric/between_nodes/pair_schedule.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/fabric_vote.hpp"
#include "step/messages/node_texts.hpp"
#include "support.hpp"

namespace amldist::fabric {
namespace {

using amldist::testing::expect_sentence;

constexpr std::uint64_t token = 0x00c0ffee00c0ffee;

/// All rounds by node, checked: they are equally many, whom I write to expects me, and pairs are disjoint except in a
/// ring.
std::vector<std::vector<PairRound>> rounds_of_all(launch::RdmaPairs pairs, std::uint32_t nodes) {
  std::vector<std::vector<PairRound>> out;
  for (std::uint32_t node = 0; node < nodes; ++node) out.push_back(pair_rounds(pairs, node, nodes));
  for (std::uint32_t node = 0; node < nodes; ++node) {
    EXPECT_EQ(out[node].size(), out[0].size());
    for (std::size_t i = 0; i < out[node].size(); ++i) {
      const PairRound& own = out[node][i];
      EXPECT_EQ(own.to.has_value(), own.from.has_value());
      if (!own.to) continue;
      EXPECT_NE(*own.to, node);
      EXPECT_LT(*own.to, nodes);
      EXPECT_EQ(out[*own.to][i].from, node) << "round " << i << " of " << nodes;
      EXPECT_TRUE(pairs == launch::RdmaPairs::ring || own.to == own.from) << "pairs are disjoint";
    }
  }
  return out;
}

using Rails = std::vector<std::string>;
using Meets = std::vector<std::optional<std::size_t>>;

TEST(MatchRails, EquallyManyGoByTheirOrderAsNamesMayMove) {
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {"mlx5_0:1", "mlx5_1:1"}), (Meets{0, 1}));
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {"mlx5_1:1", "mlx5_2:1"}), (Meets{0, 1}));
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {"mlx5_ib0:1", "mlx5_ib1:1"}), (Meets{0, 1}));
}

TEST(MatchRails, TheSameNamesInAnotherOrderMeet) {
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {"mlx5_1:1", "mlx5_0:1"}), (Meets{1, 0}));
}

TEST(MatchRails, ALostDeviceDoesNotShiftThoseBehindIt) {
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_2:1", "mlx5_3:1"}, {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}),
            (Meets{0, 2, 3}));
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}, {"mlx5_0:1", "mlx5_2:1"}), (Meets{0, std::nullopt, 1}));
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}, {"mlx5_ib0:1", "mlx5_2:1"}), (Meets{0, std::nullopt, 1}));
}

TEST(MatchRails, ANodeOfAnEarlierReleaseSendsNoNames) {
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {"", "", ""}), (Meets{0, 1}));
  EXPECT_EQ(match_rails({"mlx5_0:1", "mlx5_1:1"}, {""}), (Meets{0, std::nullopt}));
  EXPECT_EQ(match_rails({"mlx5_0:1"}, {}), (Meets{std::nullopt}));
}

TEST(MatchRails, BothEndsComeToTheSamePairs) {
  const Rails names = {"a", "b", "c", "d"};
  for (unsigned one = 0; one < 16; ++one) {
    for (unsigned two = 0; two < 16; ++two) {
      Rails left;
      Rails right;
      for (unsigned i = 0; i < 4; ++i) {
        if ((one >> i & 1) != 0) left.push_back(names[i]);
        if ((two >> i & 1) != 0) right.push_back(names[3 - i]);
      }
      const Meets there = match_rails(left, right);
      const Meets back = match_rails(right, left);
      for (std::size_t i = 0; i < there.size(); ++i) {
        EXPECT_TRUE(!there[i] || back[*there[i]] == i);
      }
      const auto met = std::ranges::count_if(there, [](const auto& each) { return each.has_value(); });
      EXPECT_EQ(static_cast<std::size_t>(met), std::min(left.size(), right.size()));
    }
  }
}

TEST(PairSchedule, ARingIsOneRound) {
  for (const std::uint32_t nodes : {2U, 3U, 8U, 1024U})
    EXPECT_EQ(rounds_of_all(launch::RdmaPairs::ring, nodes)[0].size(), 1U);
}

TEST(PairSchedule, LogIsAtMostTwelveRoundsFor1024NodesAndNobodyRestsInAll) {
  EXPECT_LE(pair_rounds(launch::RdmaPairs::log, 0, 1024).size(), 12U);
  for (const std::uint32_t nodes : {2U, 3U, 5U, 7U, 8U, 1000U, 1024U}) {
    const auto all = rounds_of_all(launch::RdmaPairs::log, nodes);
    std::set<std::uint32_t> reached = {0};
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      const auto before = reached;
      for (const std::uint32_t node : before) {
        if (all[node][i].to) reached.insert(*all[node][i].to);
      }
    }
    EXPECT_EQ(reached.size(), nodes) << "every two nodes are connected by pairs that were tried";
  }
}

TEST(PairSchedule, AllLetsEveryTwoMeetOnce) {
  for (const std::uint32_t nodes : {2U, 3U, 4U, 7U, 16U, 33U, 128U}) {
    const auto all = rounds_of_all(launch::RdmaPairs::all, nodes);
    EXPECT_LE(all[0].size(), nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) EXPECT_EQ(peers_of(all[node]).size(), nodes - 1) << nodes;
  }
  EXPECT_EQ(pair_rounds(launch::RdmaPairs::all, 5, 129), pair_rounds(launch::RdmaPairs::log, 5, 129))
      << "too many for all";
}

TEST(PairSchedule, NothingForOneNodeOrOff) {
  for (const launch::RdmaPairs pairs : {launch::RdmaPairs::ring, launch::RdmaPairs::log, launch::RdmaPairs::all}) {
    EXPECT_TRUE(pair_rounds(pairs, 0, 1).empty());
  }
  EXPECT_TRUE(pair_rounds(launch::RdmaPairs::off, 0, 8).empty());
}

TEST(Notices, TravelInDatagramsAndComeBack) {
  const std::string text(1'000, 'x');
  const auto pieces = step::notices_of(7, 3, text);
  ASSERT_EQ(pieces.size(), 3U);
  std::string joined;
  for (const step::Notice& each : pieces) {
    const std::string datagram = each.to_datagram(token);
    EXPECT_LE(datagram.size(), step::longest_datagram);
    const auto back = step::Notice::parse(datagram, token);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->key, each.key);
    joined += back->text;
    EXPECT_FALSE(step::Notice::parse(datagram, token + 1)) << "another step's";
    EXPECT_EQ(step::NoticeKey::parse(each.key.to_datagram(token), token), each.key);
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(step::notices_of(0, 0, "").size(), 1U) << "an empty text is one too";
  for (const char* const bad :
       {"notice;0;0;1;1;x", "notice;0;0;0;0;x", "notice;0;0;64;65;x", "notice;a;0;0;1;x", "notice;0;0;0;1"}) {
    EXPECT_FALSE(step::Notice::parse("aml-dist;1;00c0ffee00c0ffee;" + std::string(bad), token)) << bad;
  }
}

TEST(Notices, ABoardKeepsTheFirstTextAndABoundedAmount) {
  step::TextExchange board;
  board.take({{0, 1, 0}, 1, "first"});
  board.take({{0, 1, 0}, 1, "second"});
  ASSERT_NE(board.find({0, 1, 0}), nullptr);
  EXPECT_EQ(board.find({0, 1, 0})->text, "first");
  EXPECT_EQ(board.find({0, 2, 0}), nullptr);
  const std::string text(step::Notice::longest_text, 'x');
  for (std::uint32_t round = 1; round < 100'000; ++round) {
    for (const std::uint32_t node : {0U, 1U}) board.take({{round, node, 0}, 1, text});
  }
  EXPECT_EQ(board.find({99'999, 0, 0}), nullptr) << "a flood is not kept";
}

/// srun in memory, as spank/srun/listener.cpp answers.
class FakeSrun {
 public:
  std::string answer(const std::string& datagram) {
    const std::lock_guard lock(mutex_);
    ++datagrams;
    if (lose_every != 0 && datagrams % lose_every == 0) return {};
    if (const auto notice = step::Notice::parse(datagram, token)) {
      board_.take(*notice);
      return to_datagram(tally.is_lost() ? tally.answer() : step::MessageType::heard, token);
    }
    const auto wanted = step::NoticeKey::parse(datagram, token);
    if (!wanted) return {};
    if (tally.is_lost()) return to_datagram(tally.answer(), token);
    const step::Notice* const found = board_.find(*wanted);
    return found != nullptr ? found->to_datagram(token) : to_datagram(step::MessageType::not_yet, token);
  }

  void vote(std::uint32_t node, std::uint32_t nodes, const Check& check) {
    const std::lock_guard lock(mutex_);
    const bool good = check.verdict == Verdict::pass;
    tally.take({node, nodes, launch::RdmaPolicy::require, good, "-", good ? "host" : check.evidence, !good});
  }

  std::uint64_t datagrams = 0;
  std::uint64_t lose_every = 0;
  step::FabricTally tally;

 private:
  std::mutex mutex_;
  step::TextExchange board_;
};

/// A ring without devices: `broken` ways do not carry.
class FakeRing final : public RingTest {
 public:
  using Ways = std::set<std::pair<std::uint32_t, std::uint32_t>>;
  FakeRing(const RingPlan& plan, const Ways& broken) : plan_(plan), broken_(broken) {}

  [[nodiscard]] std::string endpoints() const override {
    return "node " + std::to_string(plan_.node) + std::string(700, '.');
  }
  void connect(std::string_view from, std::string_view to) override {
    connected_ =
        from.starts_with("node " + std::to_string(plan_.from)) && to.starts_with("node " + std::to_string(plan_.to));
  }
  void write() override {}
  [[nodiscard]] std::string written() const override { return "1"; }
  void compare(std::string_view written) override { compared_ = written == "1"; }
  void restart(const RingPlan& plan) override {
    plan_ = plan;
    connected_ = compared_ = false;
  }
  [[nodiscard]] std::vector<PairResult> results() const override {
    PairResult in{plan_.from, plan_.node, "mlx5_0:1", "", 0};
    if (broken_.contains({plan_.from, plan_.node})) in.problem = "byte 0 did not arrive";
    if (!connected_ || !compared_) in.problem = "the texts are wrong";
    return {{plan_.node, plan_.to, "mlx5_0:1", "", 0}, in};
  }

 private:
  RingPlan plan_;
  const Ways& broken_;
  bool connected_ = false;
  bool compared_ = false;
};

struct Launch {
  launch::RdmaPairs pairs = launch::RdmaPairs::ring;
  std::uint32_t nodes = 4;
  FakeRing::Ways broken;
  std::set<std::uint32_t> absent;
  std::chrono::milliseconds patience{60'000};
};

/// All nodes of a step, each in a thread; their checks by node (nullopt: decided before).
std::vector<std::optional<Check>> launch(const Launch& step, FakeSrun& srun) {
  std::vector<std::optional<Check>> out(step.nodes);
  std::vector<std::thread> threads;
  const auto deadline = Clock::now() + step.patience;
  for (std::uint32_t node = 0; node < step.nodes; ++node) {
    if (step.absent.contains(node)) continue;
    threads.emplace_back([&, node] {
      const auto rounds = pair_rounds(step.pairs, node, step.nodes);
      const auto first = std::ranges::find_if(rounds, [](const PairRound& each) { return each.to.has_value(); });
      const RingPlan plan = plan_of(*first, node, std::chrono::seconds(1));
      FakeRing ring(plan, step.broken);
      const step::AskSrun ask = [&srun](const std::string& datagram) { return srun.answer(datagram); };
      const PeerExchange exchange = [&](std::uint32_t round, const std::string& own,
                                        std::span<const std::uint32_t> peers) {
        step::RoundOutcome heard =
            step::exchange_texts(ask, token, round, node, own, peers, deadline, std::chrono::milliseconds(50));
        PeerTexts texts{std::move(heard.texts), heard.is_decided, ""};
        if (heard.silent) texts.problem = "node " + std::to_string(*heard.silent) + " took no part";
        return texts;
      };
      out[node] = run_launch_pairs(ring, plan, rounds, {}, exchange);
      if (out[node]) srun.vote(node, step.nodes, *out[node]);
    });
  }
  for (std::thread& each : threads) each.join();
  return out;
}

TEST(LaunchPairs, AHealthyStepPassesOnAllNodes) {
  for (const launch::RdmaPairs pairs : {launch::RdmaPairs::ring, launch::RdmaPairs::log, launch::RdmaPairs::all}) {
    for (const std::uint32_t nodes : {2U, 3U, 5U, 8U}) {
      FakeSrun srun;
      for (const auto& each : launch({pairs, nodes, {}, {}}, srun)) {
        ASSERT_TRUE(each);
        EXPECT_EQ(each->verdict, Verdict::pass) << each->evidence;
      }
      EXPECT_EQ(srun.tally.answer(), step::MessageType::use_fabric);
    }
  }
}

TEST(LaunchPairs, LostDatagramsAreAskedForAgain) {
  FakeSrun srun;
  srun.lose_every = 3;
  for (const auto& each : launch({launch::RdmaPairs::log, 8, {}, {}}, srun))
    EXPECT_EQ(each.value().verdict, Verdict::pass);
}

TEST(LaunchPairs, AWayThatDoesNotCarryIsNamedOnceAndEndsTheStep) {
  FakeSrun srun;
  const auto checks = launch({launch::RdmaPairs::ring, 6, {{2, 3}}, {}}, srun);
  ASSERT_TRUE(checks[3]);
  EXPECT_EQ(checks[3]->verdict, Verdict::fail);
  EXPECT_NE(checks[3]->evidence.find("node 2 -> node 3 over mlx5_0:1"), std::string::npos) << checks[3]->evidence;
  EXPECT_EQ(srun.tally.answer(), step::MessageType::refuse_step);
  const auto line = srun.tally.line();
  ASSERT_TRUE(line);
  expect_sentence(*line);
  EXPECT_NE(line->find("node 2 -> node 3"), std::string::npos) << *line;
  EXPECT_FALSE(srun.tally.line()) << "once";
}

TEST(LaunchPairs, LogAndAllFindAWayThatARingDoesNotTry) {
  FakeSrun ring, log, all;
  static_cast<void>(launch({launch::RdmaPairs::ring, 8, {{0, 4}}, {}}, ring));
  static_cast<void>(launch({launch::RdmaPairs::log, 8, {{0, 4}}, {}}, log));
  static_cast<void>(launch({launch::RdmaPairs::all, 8, {{0, 5}}, {}}, all));
  EXPECT_EQ(ring.tally.answer(), step::MessageType::use_fabric);
  EXPECT_EQ(log.tally.answer(), step::MessageType::refuse_step);
  EXPECT_EQ(all.tally.answer(), step::MessageType::refuse_step);
}

TEST(LaunchPairs, ANodeThatNeverComesIsNamedAndOthersDoNotWaitForItsNeighbours) {
  FakeSrun srun;
  const auto checks = launch({launch::RdmaPairs::ring, 5, {}, {3}, std::chrono::seconds(3)}, srun);
  EXPECT_EQ(srun.tally.answer(), step::MessageType::refuse_step);
  const auto line = srun.tally.line();
  ASSERT_TRUE(line);
  EXPECT_NE(line->find("node 3 took no part"), std::string::npos) << *line;
}

TEST(LaunchPairs, ANodeThatIsSickByItselfEndsTheWritesOfAllOthers) {
  FakeSrun srun;
  srun.tally.take({1, 4, launch::RdmaPolicy::require, false, "-", "node1: ib.state: mlx5_0:1 1: DOWN"});
  for (const auto& each : launch({launch::RdmaPairs::ring, 4, {}, {1}}, srun))
    EXPECT_FALSE(each) << "nobody else is to blame";
  EXPECT_FALSE(srun.tally.line()) << "the sick node has said it";
}

/// One after the other, round by round: what each asks is there, so no thread waits.
TEST(LaunchPairs, ARingAndTenRoundsOf1024NodesThroughOneSrun) {
  for (const auto& [pairs, most_rounds] :
       {std::pair(launch::RdmaPairs::ring, 1U), std::pair(launch::RdmaPairs::log, 12U)}) {
    constexpr std::uint32_t nodes = 1024;
    FakeSrun srun;
    const step::AskSrun ask = [&srun](const std::string& datagram) { return srun.answer(datagram); };
    std::vector<std::vector<PairRound>> rounds;
    for (std::uint32_t node = 0; node < nodes; ++node) rounds.push_back(pair_rounds(pairs, node, nodes));
    const std::string ends(800, 'e');  // eight ports
    std::uint64_t texts = 0;
    for (std::uint32_t round = 0; round < rounds[0].size(); ++round) {
      for (std::uint32_t node = 0; node < nodes; ++node) {
        for (const step::Notice& each : step::notices_of(round * 3, node, ends)) srun.answer(each.to_datagram(token));
      }
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const auto peers = peers_of({rounds[node][round]});
        const auto heard = step::exchange_texts(ask, token, round * 3, node, ends, peers,
                                                Clock::now() + std::chrono::seconds(60), std::chrono::milliseconds(1));
        for (const auto& [peer, text] : heard.texts) texts += text == ends ? 1 : 0;
      }
    }
    EXPECT_LE(rounds[0].size(), most_rounds);
    EXPECT_EQ(texts, pairs == launch::RdmaPairs::ring ? 2 * nodes : 10 * nodes);
    EXPECT_LE(srun.datagrams, std::uint64_t{nodes} * rounds[0].size() * 12) << "a dozen datagrams for a node's round";
  }
}

TEST(LaunchPairs, NamesOfNodesAreReadBack) {
  const NodeNames names = {{0, "node1"}, {5, "gpu-6.example"}};
  EXPECT_EQ(node_names_from(to_text(names)), names);
  EXPECT_TRUE(node_names_from("x,=,a=b,").empty());
}

}  // namespace
}  // namespace amldist::fabric
