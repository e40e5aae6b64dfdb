#include "launch/placement/network_topology.hpp"

#include <algorithm>
#include <random>

#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "support.hpp"

namespace amldist::launch::network_topology_test {
namespace {

using text::concat;

constexpr std::string_view tree =
    "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[1,4]\n"
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node[2-3]\n"
    "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=node[5-6]\n"
    "SwitchName=c0 Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=s[0-1]\n"
    "SwitchName=c1 Level=1 LinkSpeed=1 Nodes=node[5-6] Switches=s2\n"
    "SwitchName=top Level=2 LinkSpeed=1 Nodes=node[1-6] Switches=c[0-1]\n";

std::vector<std::string> hosts_of(std::string_view list) { return Hostlist::parse(list)->expand(); }

TEST(NetworkTopology, CountsLinksInATree) {
  const auto network = NetworkTopology::parse(tree);
  ASSERT_TRUE(network);
  EXPECT_EQ(network->hops("node1", "node1"), 0U);
  EXPECT_EQ(network->hops("node1", "node4"), 2U);
  EXPECT_EQ(network->hops("node1", "node2"), 4U);
  EXPECT_EQ(network->hops("node3", "node6"), 6U);
  EXPECT_EQ(network->hops("node1", "stranger"), 8U);
  EXPECT_EQ(network->hops("stranger", "other"), 8U);
}

TEST(NetworkTopology, OrdersHostsAlongTheSwitches) {
  const auto network = NetworkTopology::parse(tree);
  ASSERT_TRUE(network);
  const struct {
    std::string_view given;
    std::string_view ordered;
  } cases[] = {
      {"node[1-6]", "node1,node4,node2,node3,node5,node6"},
      {"node5,node1,node6,node4", "node5,node6,node1,node4"},
      {"node3,node1,node2", "node3,node2,node1"},
      {"node1,stranger,node4", "node1,node4,stranger"},
      {"node1,node2,node1,node4", "node1,node1,node4,node2"},  // a host of two tasks
      {"a,b", "a,b"},
  };
  for (const auto& each : cases) {
    const auto given = hosts_of(each.given);
    const auto ordered = network->in_order(given);
    EXPECT_EQ(ordered, hosts_of(each.ordered)) << each.given;
    EXPECT_LE(network->hops_along(ordered), network->hops_along(given)) << each.given;
    EXPECT_EQ(ordered.front(), given.front());
    EXPECT_EQ(network->in_order(ordered), ordered) << "an ordered list stays";
  }
}

TEST(NetworkTopology, ReadsBlocks) {
  const auto network = NetworkTopology::parse(
      "BlockName=b1 BlockIndex=0 Nodes=node[1,3] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=node[2,4] BlockSize=2\n"
      "AggregatedBlock=b1,b2 BlockIndex=2 Nodes=node[1-4] BlockSize=4\n");
  ASSERT_TRUE(network);
  EXPECT_EQ(network->hops("node1", "node3"), 2U);
  EXPECT_EQ(network->hops("node1", "node2"), 4U);
  EXPECT_EQ(network->in_order(hosts_of("node[1-4]")), hosts_of("node1,node3,node2,node4"));
}

TEST(NetworkTopology, ReadsAddresses) {
  const auto network = NetworkTopology::parse(
      "node1 top.s0.node1\nnode2 top.s1.node2\nnode3 top.s0.node3\nnode4 other.s0.node4\nnode5 alone\n");
  ASSERT_TRUE(network);
  EXPECT_EQ(network->hops("node1", "node3"), 2U);
  EXPECT_EQ(network->hops("node1", "node2"), 4U);
  EXPECT_EQ(network->hops("node1", "node4"), 6U) << "another switch of the same name";
  EXPECT_EQ(network->in_order(hosts_of("node[1-4]")), hosts_of("node1,node3,node2,node4"));
}

TEST(NetworkTopology, WhatIsNoTopologyIsSaid) {
  for (const std::string_view text : {"", "No topology information available\n", "SwitchName=s0 Nodes=node1\n",
                                      "SwitchName=s0 Level=99 Nodes=node1\n", "SwitchName=s0 Level=0 Nodes=(null)\n"}) {
    const auto network = NetworkTopology::parse(text);
    ASSERT_FALSE(network) << text;
    EXPECT_NE(network.error().message.find("no switches or blocks"), std::string::npos);
  }
  EXPECT_FALSE(NetworkTopology::parse("SwitchName=s0 Level=0 Nodes=node[1-\n"));
}

/// 32 racks of 32 nodes below 4 spines, in a random order: each rack, and each spine, is entered once.
TEST(NetworkTopology, AThousandNodesInARandomOrder) {
  std::string text;
  for (int rack = 0; rack < 32; ++rack)
    text += concat({"SwitchName=r", std::to_string(rack), " Level=0 Nodes=n", std::to_string(rack), "x[0-31]\n"});
  for (int spine = 0; spine < 4; ++spine)
    text += concat({"SwitchName=p", std::to_string(spine), " Level=1 Nodes=n[", std::to_string(spine * 8), "-",
                    std::to_string(spine * 8 + 7), "]x[0-31]\n"});
  text += "SwitchName=top Level=2 Nodes=n[0-31]x[0-31]\n";
  const auto network = NetworkTopology::parse(text);
  ASSERT_TRUE(network) << network.error().message;
  auto hosts = hosts_of("n[0-31]x[0-31]");
  constexpr std::uint64_t best = 2 * (1024 - 32) + 4 * (32 - 4) + 6 * (4 - 1);
  EXPECT_EQ(network->hops_along(hosts), best);
  std::mt19937 random(5);  // NOLINT(cert-msc51-cpp): the same order each time
  for (int i = 0; i < 20; ++i) {
    std::ranges::shuffle(hosts, random);
    EXPECT_GT(network->hops_along(hosts), 2 * best);
    EXPECT_EQ(network->hops_along(network->in_order(hosts)), best);
  }
}

}  // namespace
}  // namespace amldist::launch::network_topology_test
