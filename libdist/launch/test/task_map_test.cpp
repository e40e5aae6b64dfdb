#include "launch/placement/task_map.hpp"

#include <algorithm>
#include <random>

#include "support.hpp"

namespace amldist::launch::task_map_test {
namespace {

using Kind = Distribution::Kind;
using Ranks = std::vector<std::vector<std::uint32_t>>;

Ranks ranks_by_node(const TaskMap& map) {
  Ranks ranks;
  for (std::uint32_t node = 0; node < map.nodes(); ++node) ranks.push_back(map.ranks_on(node));
  return ranks;
}

struct Case {
  const char* tasks_per_node;
  Distribution distribution;
  Ranks ranks;  ///< by node
  const char* vector;
};

// The first plane case was seen on a real cluster (22.05); block and cyclic are srun(1)'s definitions.
std::vector<Case> cases() {
  return {
      {"1", {Kind::block}, {{0}}, "(vector,(0,1,1))"},
      {"2(x4)", {Kind::block}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, "(vector,(0,4,2))"},
      {"2(x4)", {Kind::cyclic}, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}, "(vector,(0,4,1))"},
      {"3(x2),1", {Kind::block}, {{0, 1, 2}, {3, 4, 5}, {6}}, "(vector,(0,2,3),(2,1,1))"},
      {"3(x2),1", {Kind::cyclic}, {{0, 3, 5}, {1, 4, 6}, {2}}, "(vector,(0,3,1),(0,2,1),(0,2,1))"},
      {"1,3,2", {Kind::cyclic}, {{0}, {1, 3, 5}, {2, 4}}, "(vector,(0,3,1),(1,2,1),(1,1,1))"},
      {"5,1,1", {Kind::plane, 2}, {{0, 1, 4, 5, 6}, {2}, {3}}, "(vector,(0,1,2),(1,2,1),(0,1,3))"},
      {"4(x2)", {Kind::plane, 2}, {{0, 1, 4, 5}, {2, 3, 6, 7}}, "(vector,(0,2,2))"},
      {"5,1(x3)", {Kind::block}, {{0, 1, 2, 3, 4}, {5}, {6}, {7}}, "(vector,(0,1,5),(1,3,1))"},
  };
}

TEST(TaskMap, DealsRanksAsSlurmDoes) {
  for (const Case& c : cases()) {
    const auto runs = parse_tasks_per_node(c.tasks_per_node);
    ASSERT_TRUE(runs);
    const auto map = TaskMap::from_tasks_per_node(*runs, c.distribution);
    ASSERT_TRUE(map) << c.tasks_per_node;
    EXPECT_EQ(ranks_by_node(*map), c.ranks) << c.tasks_per_node;
    EXPECT_EQ(map->to_string(), c.vector) << c.tasks_per_node;
  }
}

TEST(TaskMap, ReadsBackWhatItWrites) {
  for (const Case& c : cases()) {
    const auto map = TaskMap::from_tasks_per_node(*parse_tasks_per_node(c.tasks_per_node), c.distribution);
    const auto again = TaskMap::parse(map->to_string(), map->size(), map->nodes());
    ASSERT_TRUE(again) << c.vector << ": " << again.error().message;
    EXPECT_EQ(*again, *map) << c.vector;
  }
}

TEST(TaskMap, AHostFileMovesTheMaster) {
  // node3,node1,node3,node2 with node list node[1-3]
  const std::vector<std::uint32_t> node_of_rank = {2, 0, 2, 1};
  const auto map = TaskMap::from_nodes_of_ranks(node_of_rank, 3);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->node_of(0), 2U);
  EXPECT_EQ(ranks_by_node(*map), (Ranks{{1}, {3}, {0, 2}}));
  EXPECT_EQ(map->node_rank_of(2), 0U) << "rank 0's host is always node 0";
  EXPECT_EQ(map->node_rank_of(0), 1U);
  EXPECT_EQ(map->node_rank_of(1), 2U);
  EXPECT_EQ(map->node_at(0), 2U);
  EXPECT_EQ(map->local_rank_of(2), 1U);
  EXPECT_EQ(map->uniform_tasks_per_node(), std::nullopt);
  EXPECT_EQ(map->most_tasks_on_a_node(), 2U);
}

TEST(TaskMap, ArbitraryIsNeverDerived) {
  EXPECT_FALSE(TaskMap::from_tasks_per_node(std::vector<TasksRun>{{2, 2}}, {Kind::arbitrary}));
}

TEST(TaskMap, RefusesVectorsThatDoNotFit) {
  struct Bad {
    const char* text;
    std::uint32_t size;
    std::uint32_t nodes;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"", 1, 1},
           {"vector,(0,1,1)", 1, 1},
           {"(vector)", 1, 1},
           {"(vector,)", 1, 1},
           {"(vector,(0,1))", 1, 1},
           {"(vector,(0,1,1)(0,1,1))", 2, 1},
           {"(vector,(0,1,1),)", 1, 1},
           {"(vector,(0,0,1))", 1, 1},
           {"(vector,(0,1,0))", 1, 1},
           {"(vector,(1,1,1))", 1, 1},  // a node beyond the list
           {"(vector,(0,2,3))", 5, 2},  // more tasks than the step
           {"(vector,(0,1,4))", 4, 2},  // a node without a task
           {"(vector,(0,4294967295,4294967295))", 4, 2},
           {"(vector,(4294967295,1,1))", 1, 1},
           {"(vector,(-1,1,1))", 1, 1},
           {"(vector,(0,1,1))", 0, 1},
           {"(vector,(0,1,1))", 4294967295U, 1},
           {"(vector,(0,1,1))", 1, 4294967295U},
       }) {
    const auto map = TaskMap::parse(bad.text, bad.size, bad.nodes);
    ASSERT_FALSE(map) << bad.text;
    testing::expect_sentence(map.error().message);
  }
}

TEST(TaskMap, RefusesNodesThatDoNotExistOrHaveNoTask) {
  EXPECT_FALSE(TaskMap::from_nodes_of_ranks(std::vector<std::uint32_t>{0, 2}, 2));
  EXPECT_FALSE(TaskMap::from_nodes_of_ranks(std::vector<std::uint32_t>{0, 0}, 2));
  EXPECT_FALSE(TaskMap::from_nodes_of_ranks(std::vector<std::uint32_t>{4294967295U}, 1));
  EXPECT_FALSE(TaskMap::from_nodes_of_ranks(std::vector<std::uint32_t>{}, 0));
}

/// Every query against the definition, on a map given as the node of each rank.
void expect_consistent(const TaskMap& map, const std::vector<std::uint32_t>& node_of_rank, std::uint32_t nodes) {
  ASSERT_EQ(map.size(), node_of_rank.size());
  ASSERT_EQ(map.nodes(), nodes);
  std::vector<std::vector<std::uint32_t>> ranks(nodes);
  std::vector<std::uint32_t> order;
  for (std::uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const std::uint32_t node = node_of_rank[rank];
    if (ranks[node].empty()) order.push_back(node);
    EXPECT_EQ(map.node_of(rank), node);
    EXPECT_EQ(map.local_rank_of(rank), ranks[node].size());
    ranks[node].push_back(rank);
  }
  for (std::uint32_t node = 0; node < nodes; ++node) {
    EXPECT_EQ(map.ranks_on(node), ranks[node]);
    EXPECT_EQ(map.tasks_on(node), ranks[node].size());
  }
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(map.node_at(i), order[i]);
    EXPECT_EQ(map.node_rank_of(order[i]), i);
  }
}

TEST(TaskMap, HoldsItsPropertiesOnRandomLayouts) {
  std::mt19937 random(20261121);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t nodes = 1 + below(9);
    std::vector<std::uint32_t> node_of_rank;
    for (std::uint32_t node = 0; node < nodes; ++node) node_of_rank.push_back(node);
    for (std::uint32_t more = below(20); more > 0; --more) node_of_rank.push_back(below(nodes));
    if (below(2) == 0) std::ranges::shuffle(node_of_rank, random);
    const auto map = TaskMap::from_nodes_of_ranks(node_of_rank, nodes);
    ASSERT_TRUE(map);
    expect_consistent(*map, node_of_rank, nodes);
    const auto again = TaskMap::parse(map->to_string(), map->size(), nodes);
    ASSERT_TRUE(again) << map->to_string();
    EXPECT_EQ(*again, *map);
  }
}

TEST(Distribution, IsReadAsSrunTakesIt) {
  const auto read = [](const char* text, std::optional<std::uint32_t> plane = std::nullopt) {
    const auto distribution = parse_distribution(text, plane, 8, 4);
    EXPECT_TRUE(distribution) << text;
    return distribution ? *distribution : Distribution{};
  };
  EXPECT_EQ(read("").kind, Kind::block);
  EXPECT_EQ(read("*").kind, Kind::block);
  EXPECT_EQ(read("*:cyclic").kind, Kind::block);
  EXPECT_EQ(read("block:cyclic,pack").kind, Kind::block);
  EXPECT_EQ(read("cyclic").kind, Kind::cyclic);
  EXPECT_EQ(read("CYCLIC:block").kind, Kind::cyclic);
  EXPECT_EQ(read("plane=3"), (Distribution{Kind::plane, 3}));
  EXPECT_EQ(read("plane", 2), (Distribution{Kind::plane, 2}));
  EXPECT_EQ(read("arbitrary").kind, Kind::arbitrary);
  EXPECT_EQ(default_distribution(4, 4).kind, Kind::cyclic);
  for (const char* const bad : {"plane", "plane=0", "plane=x", "random", "blo"}) {
    EXPECT_FALSE(parse_distribution(bad, std::nullopt, 8, 4)) << bad;
  }
}

TEST(TaskMap, AShortTextCannotStandForMillionsOfBlocks) {
  const auto map = TaskMap::parse("(vector,(0,1,1),(1,1,1),(0,1,2),(1,1,2))", most_tasks, 2);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::limit);
  testing::expect_sentence(map.error().message);
  EXPECT_TRUE(TaskMap::parse("(vector,(0,2,1))", 1U << 20, 2)) << "the longest honest one: half a million tasks a node";
}

TEST(TaskMap, AShortTextThatMergesToOneBlockCannotKeepTheProcessorEither) {
  const auto map = TaskMap::parse("(vector,(0,1,1))", most_tasks, 1);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::limit);
}

TEST(TaskMap, CountsThatAreDealtInMillionsOfRoundsAreRefused) {
  const std::vector<TasksRun> counts{{1, most_tasks / 2}, {1, most_tasks / 2 - 1}};
  const auto map = TaskMap::from_tasks_per_node(counts, {Distribution::Kind::cyclic, 0});
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Errc::limit);
  testing::expect_sentence(map.error().message);
  EXPECT_TRUE(TaskMap::from_tasks_per_node(counts, {Distribution::Kind::block, 0}));
}

}  // namespace
}  // namespace amldist::launch::task_map_test
