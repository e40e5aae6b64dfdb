// The table of SKUs, the counters' baseline, and what travels between processes and nodes.
#include <gtest/gtest.h>

#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/checks/siblings.hpp"
#include "fabric/facts/counters.hpp"
#include "fabric/report/report_json.hpp"
#include "fabric/sku/sku_table.hpp"
#include "step/messages/fabric_vote.hpp"
#include "support.hpp"

namespace amldist::fabric::tables_test {
namespace {

using amldist::testing::expect_sentence;

TEST(SkuTable, TheBuiltInOneHasNoMistake) {
  SkuTable table;
  EXPECT_GE(SkuTable::built_in().size(), 22U);
  EXPECT_TRUE(SkuTable::built_in().find("Standard_ND96isr_H100_v5"));
}

TEST(SkuTable, NamesAreFoundWithoutPrefixCaseAndConstrainedCores) {
  const SkuTable table = SkuTable::built_in();
  for (const char* const name : {"Standard_ND96isr_H100_v5", "ND96isr_H100_v5", "standard_nd96isr_h100_v5"}) {
    const auto sku = table.find(name);
    ASSERT_TRUE(sku) << name;
    EXPECT_EQ(sku->devices, 8U);
    EXPECT_EQ(sku->rate, 400U);
    EXPECT_EQ(sku->name, name);
  }
  EXPECT_EQ(table.find("Standard_HB120-96rs_v3")->rate, 200U);
  EXPECT_EQ(table.find("standard_hb120-96rs_v3")->rate, 200U);
  EXPECT_EQ(table.find("HC44-16RS")->rate, 100U);
  EXPECT_EQ(table.find("Standard_NC96ads_A100_v4")->fabric, Sku::Fabric::none);
  EXPECT_EQ(table.find("Standard_ND96is_H100_v5")->fabric, Sku::Fabric::none);
  EXPECT_EQ(table.find("Standard_NC24r")->fabric, Sku::Fabric::no_verbs);
  EXPECT_EQ(table.find("ND128isr_GB300_v6")->rate, std::nullopt) << "sources disagree";
}

TEST(SkuTable, TheRuleOfNamesJudgesWhatNoLineFits) {
  const SkuTable table = SkuTable::built_in();
  EXPECT_EQ(table.find("Standard_XY8rs_v9")->fabric, Sku::Fabric::infiniband);
  EXPECT_TRUE(table.find("Standard_XY8rs_v9")->is_guessed);
  EXPECT_EQ(table.find("Standard_XY8rs_v9")->nearest, "") << "none is near";
  EXPECT_EQ(table.find("Standard_ND96isr_H10_v5")->nearest, "ND96isr_H100_v5");
  EXPECT_FALSE(table.find("Standard_ND96isr_H100_v5")->is_guessed);
  EXPECT_EQ(table.find("Standard_XY8s_v9")->fabric, Sku::Fabric::none) << "the r of Standard does not count";
  EXPECT_EQ(table.find("Standard_XY8s_r9")->fabric, Sku::Fabric::none) << "nor one behind the letters";
}

TEST(SkuTable, ALineWithManyStarsTakesNoLongerThanOthers) {
  std::string stars;
  for (int i = 0; i < 30; ++i) stars += "*a";
  SkuTable table;
  ASSERT_TRUE(
      table
          .add(stars +
                   "b fabric=infiniband rate=100\nn*d*_v5 fabric=infiniband rate=200\nxy* fabric=infiniband rate=400\n",
               "test")
          .empty());
  EXPECT_TRUE(table.find("N" + std::string(50, 'a') + "96r_v4")->is_guessed)
      << "after a try of each place for each star: never";
  EXPECT_EQ(table.find("NC12dd_v5")->rate, 200U);
  EXPECT_EQ(table.find("XY")->rate, 400U);
  EXPECT_TRUE(table.find("NC12dd_v5_v6")->is_guessed);
}

TEST(SkuTable, WhatIsNoNameIsRefused) {
  const SkuTable table = SkuTable::built_in();
  for (const char* const name : {"", "Standard_", "ND", "96", "ND96isr H100", "ND96-isr", "*", "\x01", "nd\xff"}) {
    const auto sku = table.find(name);
    ASSERT_FALSE(sku) << name;
    expect_sentence(sku.error().message);
  }
  EXPECT_FALSE(table.find(std::string(1000, 'A')));
}

TEST(SkuTable, BadLinesAreNamedAndSkipped) {
  SkuTable table;
  const auto complaints = table.add(
      "good fabric=infiniband devices=2 rate=100\nfabricless devices=2\nbad1 fabric=token-ring\nbad2 fabric=roce "
      "devices=0\n"
      "bad3 fabric=none rate=many\nbad4 fabric=none colour=red\r\n# comment\n\n  spaced   fabric=roce   # roce\n",
      "file");
  EXPECT_EQ(complaints.size(), 5U);
  for (const SkuFault& each : complaints) expect_sentence(each.wrong);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.find("spaced")->fabric, Sku::Fabric::roce);
}

NodeFacts node_with(const char* value, const char* counter = "link_downed") {
  NodeFacts node;
  DeviceFacts device;
  device.name = "mlx5_0";
  PortFacts port;
  port.counters[counter] = {Attribute::State::present, value};
  device.ports.push_back(port);
  node.devices.push_back(device);
  return node;
}

Increase gained(const Baseline& baseline, const NodeFacts& node, std::uint64_t now,
                std::uint64_t window = flap_window) {
  return baseline.increase(node.devices[0], node.devices[0].ports[0], "link_downed", now, window);
}

TEST(Baseline, CountsWhatWasAddedWithinTheWindow) {
  constexpr std::uint64_t hour = 3600;
  Baseline baseline;
  baseline.record(node_with("5"), 1000 * hour);
  baseline.record(node_with("9"), 1010 * hour);
  EXPECT_EQ(gained(baseline, node_with("11"), 1011 * hour).added, 6U) << "from the last sample before the window";
  EXPECT_EQ(gained(baseline, node_with("11"), 1014 * hour).added, 2U);
  EXPECT_EQ(gained(baseline, node_with("9"), 1014 * hour).added, 0U);
}

TEST(Baseline, SurvivesResets) {
  Baseline baseline;
  baseline.record(node_with("200"), 100'000);
  baseline.record(node_with("1"), 100'010);  // a reboot, seen at once
  EXPECT_EQ(gained(baseline, node_with("3"), 100'700).added, 3U);
  EXPECT_EQ(gained(baseline, node_with("0"), 100'700).added, 1U) << "reset twice";
}

TEST(Baseline, WithoutHistoryCountsFromTheReset) {
  const Increase increase = gained(Baseline(), node_with("7"), 5000);
  EXPECT_EQ(increase.added, 7U);
  EXPECT_EQ(increase.since, 0U);
}

TEST(Baseline, StaysSmallAndComesBackFromItsText) {
  Baseline baseline;
  for (std::uint64_t i = 0; i < 1000; ++i) baseline.record(node_with("5"), 1'000'000 + 60 * i);
  const std::string text = baseline.to_string();
  EXPECT_LT(text.size(), 300U);
  const auto again = Baseline::parse(text);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->to_string(), text);
}

TEST(Baseline, AHalfWrittenFileIsNoBaseline) {
  for (const char* const bad : {"12 a/1 b", "12 a/1 link_downed 5", "x a/1 link_downed 5\n", "12 a/1 link_downed -5\n",
                                "12  link_downed 5\n", "\xff\xff\n", "12 a/1 link_downed 99999999999999999999999\n"}) {
    EXPECT_FALSE(Baseline::parse(bad)) << bad;
  }
  EXPECT_TRUE(Baseline::parse(""));
}

TEST(Counters, NotEverythingIsANumber) {
  for (const char* const text : {"N/A (no PMA)", "-1", "1.5", "0x10", "99999999999999999999999999"}) {
    EXPECT_FALSE(counter_value(node_with(text).devices[0].ports[0], "link_downed")) << text;
  }
}

TEST(ReportLines, ComeBackAndAreStrict) {
  const std::vector<Check> checks = {{"ib.state", Verdict::fail, "a\tb\nc", "do"}, {"ib.lid", Verdict::skip, "", ""}};
  const auto again = checks_from_lines(to_lines(checks));
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)[0].evidence, "a b c");
  EXPECT_EQ((*again)[1].verdict, Verdict::skip);
  for (const char* const bad : {"pass\tx\n", "maybe\ta\tb\tc\n", "garbage", "pass\ta\tb\tc\td\n"}) {
    EXPECT_FALSE(checks_from_lines(bad)) << bad;
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += "pass\tx\ty\tz\n";
  EXPECT_FALSE(checks_from_lines(many));
}

TEST(ReportJson, HasEveryFieldAndEscapesWhatItMust) {
  const Report report{launch::RdmaPolicy::prefer, {{"ib.state", Verdict::fail, "a\"b\\c\n\x7f\xff", "do"}}, true};
  const std::string host = "node1";
  EXPECT_EQ(to_json(NodeReport{host, report, FabricSettings{}}), R"({
  "schema": 2,
  "node": "node1",
  "policy": "prefer",
  "verdict": "fail",
  "checks": [
    {"id": "ib.state", "verdict": "fail", "evidence": "a\"b\\c\u000a\u007f\u00ff", "remedy": "do"}
  ],
  "nccl_ib_hca": null,
  "nccl_ib_gid_index": null
})");
}

TEST(Summary, ComesBackFromItsText) {
  NodeSummary summary{
      "node1", true, {{"ib.state", Verdict::pass, "x", ""}}, {{"mlx5_0:1", "400 Gb/sec", true}}, {{"pkey", "0x0018"}}};
  const auto again = summary_from_text(to_text(summary));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->host, "node1");
  EXPECT_EQ(again->traits.at("pkey"), "0x0018");
  ASSERT_EQ(again->ports.size(), 1U);
  EXPECT_TRUE(again->ports[0].sick);
  EXPECT_EQ(again->ports[0].text, "400 Gb/sec");
  for (const char* const bad : {"", "node1", "node1\t1\n", "node1\n\n", "node1\t1\nnovalue\n\n", "node1\t1\n\njunk"}) {
    EXPECT_FALSE(summary_from_text(bad)) << bad;
  }
}

NodeSummary summary_of(std::string host, std::string pkey) {
  return {std::move(host), true, {{"ib.pkey", Verdict::pass, "fine", ""}}, {}, {{"pkey", std::move(pkey)}}};
}

TEST(Job, NamesTheNodeThatDeviates) {
  const Report report = verify_job({summary_of("a", "0x0018"), summary_of("b", "0x0022"), summary_of("c", "0x0018")},
                                   {{}, "not tried", 0}, launch::RdmaPolicy::require);
  const Check* const check = report.find("ib.pkey");
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->verdict, Verdict::fail);
  EXPECT_NE(check->evidence.find("b has P_Key 0x0022"), std::string::npos) << check->evidence;
  EXPECT_EQ(report.find("ib.pair")->verdict, Verdict::skip);
}

TEST(Job, AGidIndexMayDifferAndADriverShouldNot) {
  NodeSummary one = summary_of("a", "0x0018");
  NodeSummary two = summary_of("b", "0x0018");
  for (NodeSummary* const each : {&one, &two}) {
    each->checks.push_back({"ib.gid", Verdict::pass, "fine", ""});
    each->checks.push_back({"gpu.count", Verdict::pass, "8 GPUs", ""});
    each->checks.push_back({"gpu.fabric", Verdict::pass, "clique 0", ""});
  }
  one.traits["nccl_ib_gid_index"] = "3";
  two.traits["nccl_ib_gid_index"] = "5";
  EXPECT_EQ(verify_job({one, two}, {}, launch::RdmaPolicy::require).verdict(), Verdict::pass);
  one.traits["gpu_driver"] = one.traits["nvlink"] = "1";
  two.traits["gpu_driver"] = two.traits["nvlink"] = "2";
  const Report report = verify_job({one, two}, {}, launch::RdmaPolicy::require);
  EXPECT_EQ(report.find("gpu.count")->verdict, Verdict::warn);
  EXPECT_EQ(report.find("gpu.fabric")->verdict, Verdict::warn);
  EXPECT_EQ(report.verdict(), Verdict::warn);
}

TEST(Job, SettingsOfRoceThatDifferAreNamed) {
  struct Case {
    std::string check, trait, usual, other, says;
  };
  const std::vector<Case> all = {
      {"roce.mtu", "mtu", "9000", "1500", "c has MTU 1500, 2 nodes have 9000 (a)"},
      {"roce.qos", "qos", "PFC 3, ECN 3", "PFC none, ECN 3",
       "c has flow control PFC none, ECN 3, 2 nodes have PFC 3, ECN 3 (a)"},
      {"ib.fw", "rdma_driver", "24.10", "23.10", "c has RDMA driver 23.10, 2 nodes have 24.10 (a)"},
      {"ib.fw", "firmware:MT_838", "28.41", "28.37", "c has firmware 28.37, 2 nodes have 28.41 (a)"},
      {"ib.provider", "verbs_library", "libibverbs.so.1.14.44.0", "libibverbs.so.1.11.32.0",
       "c has verbs library libibverbs.so.1.11.32.0, 2 nodes have libibverbs.so.1.14.44.0 (a)"},
      {"ib.pcie", "pcie", "32.0 GT/s x16", "16.0 GT/s x16",
       "c has PCIe link 16.0 GT/s x16, 2 nodes have 32.0 GT/s x16 (a)"},
      {"ib.gid", "gid_kinds", "RoCE v2 IPv4", "RoCE v2 IPv6",
       "c has kinds of GIDs RoCE v2 IPv6, 2 nodes have RoCE v2 IPv4 (a)"},
      {"ib.netdev", "ipoib_mtu", "4092", "2044", "c has IPoIB MTU 2044, 2 nodes have 4092 (a)"},
      {"ib.gdr", "peer_memory", "nvidia_peermem 550.90", "none",
       "c has GPUDirect module none, 2 nodes have nvidia_peermem 550.90 (a)"}};
  for (const Case& each : all) {
    std::vector<NodeSummary> nodes;
    for (const char* const host : {"a", "b", "c"}) {
      nodes.push_back({host, true, {{each.check, Verdict::pass, "fine", ""}}, {}, {}});
      nodes.back().traits[each.trait] = *host == 'c' ? each.other : each.usual;
    }
    const Report report = verify_job(nodes, {}, launch::RdmaPolicy::require);
    EXPECT_EQ(report.find(each.check)->verdict, Verdict::warn) << each.trait;
    EXPECT_EQ(report.find(each.check)->evidence, each.says);
    nodes.back().traits[each.trait] = each.usual;
    EXPECT_EQ(verify_job(nodes, {}, launch::RdmaPolicy::require).find(each.check)->verdict, Verdict::pass)
        << each.trait;
  }
}

TEST(Job, WhatMustBeUniqueIsNamedWhereTwoNodesHaveIt) {
  // One InfiniBand port, mlx5_0:1, of a node.
  const auto node_with = [](const std::string& lid, const std::string& guid) {
    const auto told = [](std::string text) { return Attribute{Attribute::State::present, std::move(text)}; };
    PortFacts port;
    port.link_layer = told("InfiniBand");
    port.state = told("4: ACTIVE");
    port.phys_state = told("5: LinkUp");
    port.lid = told(lid);
    port.sm_lid = told("0x1");
    port.gids = {{0, *Gid::parse("fe80:0000:0000:0000:0000:0000:0000:0001"), "", ""}};
    DeviceFacts device;
    device.name = "mlx5_0";
    device.node_guid = told(guid);
    device.ports = {port};
    NodeFacts node;
    node.devices = {device};
    return node;
  };
  struct Case {
    NodeFacts other;
    std::string says;
  };
  const NodeFacts own = node_with("0x5", "a088:c203:0001:8ae0");
  const std::vector<Case> all = {
      {node_with("0x6", "a088:c203:0002:8ae0"), ""},
      {node_with("0x5", "a088:c203:0002:8ae0"), "a and b have the same address mlx5_0:1/LID:0x5/SM:0x1"},
      {node_with("0x6", "a088:c203:0001:8ae0"), "a and b have the same address a088:c203:0001:8ae0"},
      {own, ""}};  // one machine that is two nodes of Slurm's
  for (const Case& each : all) {
    std::vector<NodeSummary> nodes;
    for (const NodeFacts* const facts : {&own, &each.other}) {
      std::string identities;
      for (const std::string& identity : identities_of(*facts, {}))
        identities += (identities.empty() ? "" : " ") + identity;
      nodes.push_back(
          {nodes.empty() ? "a" : "b", true, {{"ib.gid", Verdict::pass, "fine", ""}}, {}, {{"identities", identities}}});
    }
    const Report report = verify_job(nodes, {}, launch::RdmaPolicy::require);
    EXPECT_EQ(report.find("ib.gid")->verdict, each.says.empty() ? Verdict::pass : Verdict::warn) << each.says;
    EXPECT_NE(report.find("ib.gid")->evidence.find(each.says), std::string::npos) << report.find("ib.gid")->evidence;
  }
}

TEST(Job, NodesOfManyPortsAreComparedByAsManyAddressesAsFit) {
  const auto summary_with = [](const char* host, unsigned last_part) {
    const auto told = [](std::string text) { return Attribute{Attribute::State::present, std::move(text)}; };
    NodeFacts node;
    node.host = host;
    for (unsigned i = 0; i < 200; ++i) {
      PortFacts port;
      port.state = told("4: ACTIVE");
      DeviceFacts device;
      device.name = "mlx5_" + std::to_string(i);
      const std::string part = std::to_string(1000 + i);
      device.node_guid = told("a088:c203:" + part + ":" + std::to_string(i == 0 ? 1000 : last_part));
      device.ports = {port};
      node.devices.push_back(device);
    }
    return summarise(node, {}, {.checks = {{"ib.gid", Verdict::pass, "fine", ""}}, .verified = true});
  };
  const Report report = verify_job({summary_with("a", 1001), summary_with("b", 1002)}, {}, launch::RdmaPolicy::require);
  EXPECT_NE(report.find("ib.gid")->evidence.find("a and b have the same address a088:c203:1000:1000"),
            std::string::npos)
      << report.find("ib.gid")->evidence;
}

TEST(Job, ANodeWithoutPortsAmongOthersIsAFailure) {
  NodeSummary empty{"d", false, {{"ib.sysfs", Verdict::skip, "no device", ""}}, {}, {}};
  NodeSummary full = summary_of("a", "0x0018");
  full.checks.push_back({"ib.sysfs", Verdict::pass, "8 devices", ""});
  EXPECT_EQ(verify_job({full, empty}, {}, launch::RdmaPolicy::prefer).verdict(), Verdict::fail);
}

TEST(Job, APairThatFailsNamesBothEnds) {
  PairResults pairs{{{0, 1, "mlx5_0:1", "", 0}, {1, 0, "mlx5_0:1", "RDMA write: completion status 12", 0}}, "", 0};
  const Check check =
      *verify_job({summary_of("a", "1"), summary_of("b", "1")}, pairs, launch::RdmaPolicy::require).find("ib.pair");
  EXPECT_EQ(check.verdict, Verdict::fail);
  EXPECT_NE(check.evidence.find("b -> a over mlx5_0:1: RDMA write"), std::string::npos) << check.evidence;
}

TEST(Job, ZeroBandwidthIsNoSuccess) {
  PairResults pairs{{{0, 1, "mlx5_0:1", "", 0}}, "", 360};
  EXPECT_EQ(verify_job({summary_of("a", "1"), summary_of("b", "1")}, pairs, launch::RdmaPolicy::require)
                .find("ib.pair")
                ->verdict,
            Verdict::fail);
}

constexpr std::uint64_t token = 0x1234;

TEST(FabricVote, ComesBackAndIsStrict) {
  const step::FabricVote vote{2, 4, launch::RdmaPolicy::require, true, "0x0018/-", "node3"};
  EXPECT_EQ(step::FabricVote::parse(vote.to_datagram(token), token), vote);
  EXPECT_FALSE(step::FabricVote::parse(vote.to_datagram(token), token + 1));
  for (const char* const tail : {"fabric;4;4;prefer;good;-;x", "fabric;0;0;prefer;good;-;x", "fabric;0;4;off;good;-;x",
                                 "fabric;0;4;prefer;maybe;-;x", "fabric;0;4;prefer;good;-", "fabric"}) {
    EXPECT_FALSE(step::FabricVote::parse(std::string("aml-dist;1;0000000000001234;") + tail, token)) << tail;
  }
  const step::FabricVote hostile{0, 4, launch::RdmaPolicy::prefer, false, "-", std::string(5000, ';') + "\n\x1b[31m"};
  const auto parsed = step::FabricVote::parse(hostile.to_datagram(token), token);
  ASSERT_TRUE(parsed);
  expect_sentence(parsed->text);
}

step::FabricVote good(std::uint32_t node, std::string traits = "0x0018/-",
                      launch::RdmaPolicy policy = launch::RdmaPolicy::prefer) {
  return {node, 2, policy, true, std::move(traits), "node" + std::to_string(node)};
}

TEST(FabricTally, AllMustBeGoodAndAlike) {
  step::FabricTally tally;
  EXPECT_EQ(tally.answer(), step::MessageType::not_yet);
  tally.take(good(0));
  tally.take(good(0));
  EXPECT_EQ(tally.answer(), step::MessageType::not_yet) << "one node twice is not two";
  tally.take(good(1));
  EXPECT_EQ(tally.answer(), step::MessageType::use_fabric);
  EXPECT_FALSE(tally.line());
}

TEST(FabricTally, OneSickNodeDecidesForAllAndIsToldOnce) {
  step::FabricTally tally;
  tally.take({1, 2, launch::RdmaPolicy::prefer, false, "-", "node1: ib.state: down"});
  EXPECT_EQ(tally.answer(), step::MessageType::use_sockets);
  const auto line = tally.line();
  ASSERT_TRUE(line);
  EXPECT_NE(line->find("node1: ib.state"), std::string::npos);
  EXPECT_FALSE(tally.line());
  tally.take(good(0));
  tally.take(good(1));
  EXPECT_EQ(tally.answer(), step::MessageType::use_sockets) << "what was said stays said";
}

step::FabricVote killed_check(launch::RdmaPolicy policy) {
  step::FabricVote vote{1, 2, policy, false, "-", "rdma=require failed on node1: ib.helper: killed"};
  vote.killed = true;
  return vote;
}

TEST(FabricTally, AKilledCheckIsToldOnceAndOnlyWhereNothingElseFailed) {
  step::FabricTally alone;
  alone.take(killed_check(launch::RdmaPolicy::require));
  EXPECT_EQ(alone.answer(), step::MessageType::refuse_step);
  EXPECT_EQ(alone.line(), "rdma=require failed on node1: ib.helper: killed");
  EXPECT_FALSE(alone.line());
  step::FabricTally after_another;
  after_another.take({0, 2, launch::RdmaPolicy::require, false, "-", "node0: ib.state: down"});
  after_another.take(killed_check(launch::RdmaPolicy::require));
  EXPECT_EQ(after_another.answer(), step::MessageType::refuse_step);
  EXPECT_FALSE(after_another.line()) << "node0 has said itself why";
}

TEST(FabricVote, KilledCheckIsReadAsWritten) {
  const step::FabricVote vote = killed_check(launch::RdmaPolicy::require);
  EXPECT_EQ(step::FabricVote::parse(vote.to_datagram(5), 5), vote);
}

TEST(FabricTally, DifferentPartitionsAreNamed) {
  step::FabricTally tally;
  tally.take(good(0, "0x0018/-", launch::RdmaPolicy::require));
  tally.take(good(1, "0x0022/-", launch::RdmaPolicy::require));
  EXPECT_EQ(tally.answer(), step::MessageType::refuse_step) << "require: no program starts";
  const auto line = tally.line();
  ASSERT_TRUE(line);
  for (const char* const word : {"node0", "node1", "0x0018", "0x0022"})
    EXPECT_NE(line->find(word), std::string::npos) << *line;
}

}  // namespace
}  // namespace amldist::fabric::tables_test
