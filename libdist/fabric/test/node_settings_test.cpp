// What the nodes of a step are compared by before its tasks start: the sheets that they send to srun, and what it says.
#include "fabric/between_nodes/node_settings.hpp"

#include <gtest/gtest.h>

#include "step/messages/text_exchange.hpp"

namespace amldist::fabric {
namespace {

std::string sheet(const std::string& host, const std::map<std::string, std::string, std::less<>>& traits,
                  std::uint32_t nodes = 3) {
  return to_text(NodeSettings{nodes, launch::RdmaPolicy::require, {host, true, {}, {}, traits}});
}

/// "check: evidence" of each difference between nodes named node0, node1, ...
std::vector<std::string> said(const std::vector<std::map<std::string, std::string, std::less<>>>& traits_of_nodes) {
  SettingsComparison step;
  const auto count = static_cast<std::uint32_t>(traits_of_nodes.size());
  for (std::uint32_t node = 0; node < count; ++node)
    step.take(node, sheet("node" + std::to_string(node), traits_of_nodes[node], count));
  std::vector<std::string> out;
  for (const Difference& each : step.differences()) out.push_back(each.check + ": " + each.finding.evidence);
  return out;
}

using Lines = std::vector<std::string>;

TEST(SettingsComparison, EqualNodesAreNotSpokenOf) {
  EXPECT_EQ(said({{{"gpu_driver", "550"}}, {{"gpu_driver", "550"}}}), Lines());
  EXPECT_EQ(said({{}, {{"gpu_driver", "550"}}}), Lines()) << "a node without GPUs has no driver that could differ";
}

TEST(SettingsComparison, TheNodeThatDiffersFromMostIsNamed) {
  EXPECT_EQ(said({{{"gpu_driver", "550"}}, {{"gpu_driver", "535"}}, {{"gpu_driver", "550"}}}),
            Lines({"gpu.count: node1 has GPU driver 535, 2 nodes have 550 (node0)"}));
  EXPECT_EQ(said({{{"nvlink", "aa/1"}}, {{"nvlink", "none"}}, {{"nvlink", "aa/2"}}, {{"nvlink", "aa/1"}}}),
            Lines({"gpu.fabric: node2 has NVLink domain and clique aa/2, 2 nodes have aa/1 (node0)",
                   "gpu.fabric: node1 has NVLink domain and clique none, 2 nodes have aa/1 (node0)"}));
}

TEST(SettingsComparison, FirmwareIsComparedBetweenCardsOfOneModel) {
  EXPECT_EQ(said({{{"firmware:MT_838", "28.41"}}, {{"firmware:MT_007", "20.33"}}}), Lines());
  EXPECT_EQ(said({{{"firmware:MT_838", "28.41"}, {"firmware:MT_007", "20.33"}},
                  {{"firmware:MT_838", "28.41"}, {"firmware:MT_007", "20.31"}},
                  {{"firmware:MT_007", "20.33"}}}),
            Lines({"ib.fw: node1 has firmware 20.31, 2 nodes have 20.33 (node0)"}));
}

TEST(SettingsComparison, FewerPortsThanTheOthersIsAFailure) {
  SettingsComparison step;
  step.take(0, sheet("a", {{"ports", "8"}}, 2));
  step.take(1, sheet("b", {{"ports", "7"}}, 2));
  const auto differences = step.differences();
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].finding.verdict, Verdict::fail);
  EXPECT_EQ(step.policy(), launch::RdmaPolicy::require);
}

TEST(SettingsComparison, NothingIsSaidBeforeAllHaveComeAndNothingTwice) {
  SettingsComparison step;
  step.take(0, sheet("a", {{"gpu_driver", "1"}}));
  step.take(2, sheet("c", {{"gpu_driver", "2"}}));
  step.take(2, sheet("c", {{"gpu_driver", "1"}}));
  EXPECT_TRUE(step.differences().empty());
  step.take(1, sheet("b", {{"gpu_driver", "1"}}));
  EXPECT_EQ(step.differences().size(), 1U);
  EXPECT_TRUE(step.differences().empty());
}

TEST(SettingsComparison, WhatIsMalformedOrOfAnotherStepIsIgnored) {
  SettingsComparison step;
  step.take(0, sheet("a", {{"gpu_driver", "1"}}, 2));
  for (const char* const bad : {"", "2", "2\trequire", "0\trequire\tb", "x\trequire\tb", "2\tmaybe\tb",
                                "2\trequire\tb\tgpu_driver", "3\trequire\tb\tgpu_driver=2"}) {
    step.take(1, bad);
    EXPECT_TRUE(!node_settings_from_text(bad) || *bad == '3') << bad;
  }
  step.take(2, sheet("c", {{"gpu_driver", "2"}}, 2));
  EXPECT_TRUE(step.differences().empty());
  step.take(1, sheet("b", {{"gpu_driver", "2"}}, 2));
  EXPECT_EQ(step.differences().size(), 1U);
}

TEST(NodePresence, SurvivesTheWayToSrun) {
  const auto back = NodePresence::parse(NodePresence{launch::RdmaPolicy::require, 4}.to_string());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->policy, launch::RdmaPolicy::require);
  EXPECT_EQ(back->nodes, 4U);
  for (const std::string_view bad : {"", "require", "require ", "require 0", "require 4 4", "often 4", "require x",
                                     "require 1000001", "require -1", "4 require"}) {
    EXPECT_FALSE(NodePresence::parse(bad)) << bad;
  }
}

TEST(SettingsComparison, ASheetSurvivesTheWayToSrun) {
  const std::string text = sheet("a\tb;c", {{"firmware:x", "1;2\n\x1b[31m"}, {"pkey", "0x18"}});
  EXPECT_EQ(text.find(';'), std::string::npos);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto back = node_settings_from_text(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->nodes, 3U);
  EXPECT_EQ(back->node.traits.size(), 1U) << "the votes compare partitions";
  EXPECT_TRUE(step::NoticeKey::parse(step::NoticeKey{settings_round, 1, 0}.to_datagram(7), 7))
      << "srun takes notices of this round";
}

}  // namespace
}  // namespace amldist::fabric
