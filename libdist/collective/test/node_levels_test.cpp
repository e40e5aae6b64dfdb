// Who leads whom inside a node.
#include "collective/node/node_levels.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {
namespace {

using Group = std::vector<std::uint32_t>;

/// `ranks` of each domain, `domains` of each socket, in blocks; as the kernel says it.
std::vector<NodePlace> machine(int sockets, int domains, int ranks) {
  std::vector<NodePlace> places;
  for (int socket = 0; socket < sockets; ++socket) {
    for (int domain = 0; domain < domains; ++domain)
      places.insert(places.end(), static_cast<std::size_t>(ranks),
                    {{(socket * domains + domain) * ranks, socket, socket}, false});
  }
  return places;
}

TEST(NodeLevels, AreDomainsAndTheirLeaders) {
  const NodeDivision two = divide_node(machine(1, 2, 4), false);
  EXPECT_EQ(two.levels, (NodeLevels{{{0, 1, 2, 3}, {4, 5, 6, 7}}, {{0, 4}}}));
  EXPECT_EQ(two.text, "2 cache domains, leaders");
}

TEST(NodeLevels, HaveSocketsInBetweenWhereThereAreManyDomains) {
  const NodeDivision many = divide_node(machine(2, 4, 2), false);
  ASSERT_EQ(many.levels.size(), 3U);
  EXPECT_EQ(many.levels[1], (std::vector<Group>{{0, 2, 4, 6}, {8, 10, 12, 14}}));
  EXPECT_EQ(many.levels[2], std::vector<Group>({{0, 8}}));
  EXPECT_EQ(many.text, "8 cache domains, leaders of 2 groups");
  EXPECT_EQ(divide_node(machine(2, 2, 4), false).levels.size(), 2U) << "four domains";
  EXPECT_EQ(divide_node(machine(1, 8, 2), false).levels.size(), 2U) << "one socket";
}

TEST(NodeLevels, AreThoseOfRanksInAnyOrder) {
  std::vector<NodePlace> places = machine(1, 2, 4);
  std::swap(places[1], places[6]);
  EXPECT_EQ(divide_node(places, false).levels.front(), (std::vector<Group>{{0, 2, 3, 6}, {1, 4, 5, 7}}));
}

TEST(NodeLevels, AreNoneWhereTheyGainNothing) {
  EXPECT_TRUE(divide_node(machine(1, 1, 16), false).levels.empty());
  EXPECT_EQ(divide_node(machine(1, 1, 16), false).text, "1 cache domain");
  EXPECT_TRUE(divide_node(machine(1, 2, 3), false).levels.empty()) << "few ranks";
  EXPECT_TRUE(divide_node(machine(1, 16, 1), false).levels.empty()) << "each rank has a cache of its own";
  EXPECT_TRUE(divide_node(machine(1, 2, 8), true).levels.empty()) << "ranks share processors";
}

TEST(NodeLevels, AreNoneWhereARankIsUnknown) {
  std::vector<NodePlace> places = machine(1, 2, 8);
  places[3].processors = {};
  EXPECT_TRUE(divide_node(places, false).levels.empty());
  EXPECT_EQ(divide_node(places, false).text, "cache domains unknown");
}

TEST(NodeLevels, AreOfNumaNodesOrSocketsWhereCachesAreUnknown) {
  std::vector<NodePlace> places = machine(2, 1, 8);
  for (NodePlace& place : places) place.processors.cache = -1;
  EXPECT_EQ(divide_node(places, false).levels.front().size(), 2U);
  EXPECT_EQ(divide_node(places, false).text, "2 NUMA nodes, leaders");
  for (NodePlace& place : places) place.processors.memory = -1;
  EXPECT_EQ(divide_node(places, false).text, "2 sockets, leaders");
}

TEST(NodeLevels, AreUsedWhereTheyAreGiven) {
  std::vector<NodePlace> places = machine(2, 2, 1);
  places.push_back(places.back());
  for (NodePlace& place : places) place.is_given = true;
  const NodeDivision given = divide_node(places, true);
  EXPECT_EQ(given.levels, (NodeLevels{{{0}, {1}, {2}, {3, 4}}, {{0, 1}, {2, 3}}, {{0, 2}}}));
  places.front().is_given = false;
  EXPECT_TRUE(divide_node(places, true).levels.empty()) << "not on all ranks";
}

}  // namespace
}  // namespace amldist::collective
