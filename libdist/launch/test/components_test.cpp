#include "launch/placement/components.hpp"

#include "base/text/tasks_per_node.hpp"
#include "support.hpp"

namespace amldist::launch::components_test {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Names = std::vector<std::string>;

struct Part {
  const char* hosts;
  Numbers node_of_rank;
};

struct Case {
  std::vector<Part> parts;
  Names host_of_rank;
  Numbers local_rank;
  Numbers node_rank;
};

Result<Placement> joined(const std::vector<Part>& parts) {
  Components step;
  for (const Part& part : parts) {
    const auto hosts = Hostlist::parse(part.hosts);
    EXPECT_TRUE(hosts) << part.hosts;
    if (auto status = step.join(*hosts, part.node_of_rank); !status) return status.error();
  }
  return std::move(step).placement(Provenance::exact, "a test");
}

TEST(Components, GoOnWithRanksAndShareHosts) {
  const std::vector<Case> cases = {
      {{{"node[1-2]", {0, 1, 0, 1}}}, {"node1", "node2", "node1", "node2"}, {0, 0, 1, 1}, {0, 1, 0, 1}},
      {{{"node[1-2]", {0, 0, 1, 1}}, {"node3", {0}}},
       {"node1", "node1", "node2", "node2", "node3"},
       {0, 1, 0, 1, 0},
       {0, 0, 1, 1, 2}},
      // The same host in both: one node, whose local ranks go on.
      {{{"node1", {0, 0}}, {"node[1-2]", {0, 1}}}, {"node1", "node1", "node1", "node2"}, {0, 1, 2, 0}, {0, 0, 0, 1}},
      // The second component comes first in the sorted list, and a third returns to the first.
      {{{"node3", {0}}, {"node[1-2]", {1, 0}}, {"node[2-3]", {0, 1, 1}}},
       {"node3", "node2", "node1", "node2", "node3", "node3"},
       {0, 0, 0, 1, 1, 2},
       {0, 1, 2, 1, 0, 0}},
  };
  for (const Case& c : cases) {
    const auto placement = joined(c.parts);
    ASSERT_TRUE(placement) << placement.error().message;
    const TaskMap& map = placement->map;
    ASSERT_EQ(map.size(), c.host_of_rank.size());
    EXPECT_EQ(placement->hosts.size(), map.nodes());
    for (std::uint32_t rank = 0; rank < map.size(); ++rank) {
      EXPECT_EQ(placement->host_of(rank), c.host_of_rank[rank]) << rank;
      EXPECT_EQ(map.local_rank_of(rank), c.local_rank[rank]) << rank;
      EXPECT_EQ(map.node_rank_of(map.node_of(rank)), c.node_rank[rank]) << rank;
    }
    EXPECT_EQ(placement->provenance, Provenance::exact);
    EXPECT_EQ(placement->source, "a test");
  }
}

TEST(Components, JoinMapsAsTheyJoinLists) {
  const auto hosts = Hostlist::parse("a[1-3]");
  ASSERT_TRUE(hosts);
  const auto map = TaskMap::from_tasks_per_node(std::vector<TasksRun>{{2, 3}, {1, 1}}, {Distribution::Kind::cyclic, 0});
  ASSERT_TRUE(map);
  Components by_map;
  Components by_list;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(by_map.join(*hosts, *map));
    ASSERT_TRUE(by_list.join(*hosts, Numbers{0, 1, 2, 0, 1, 0, 1}));
  }
  EXPECT_EQ(by_map.tasks(), 14U);
  const auto one = std::move(by_map).placement(Provenance::given, "");
  const auto other = std::move(by_list).placement(Provenance::given, "");
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->map, other->map);
  EXPECT_EQ(one->hosts.expand(), (Names{"a1", "a2", "a3"}));
}

TEST(Components, RefuseWhatIsNoStep) {
  EXPECT_FALSE(joined({}));
  for (const auto& parts :
       std::vector<std::vector<Part>>{{{"node1", {0, 1}}},                    // a host beyond the list
                                      {{"node[1-2]", {0}}},                   // a host without a task
                                      {{"node1", {0}}, {"node[2-3]", {1}}}})  // the same in a later component
  {
    const auto placement = joined(parts);
    ASSERT_FALSE(placement);
    testing::expect_sentence(placement.error().message);
  }
}

TEST(Components, NameMoreNodesThanOneTextHolds) {
  const auto hosts = Hostlist::parse("a-cluster-with-rather-long-names-[00001-10240]");
  ASSERT_TRUE(hosts);
  const auto map = TaskMap::from_tasks_per_node(std::vector<TasksRun>{{10240, 1}}, {Distribution::Kind::block, 0});
  ASSERT_TRUE(map);
  Components step;
  ASSERT_TRUE(step.join(*hosts, *map));
  const auto placement = std::move(step).placement(Provenance::exact, "");
  ASSERT_TRUE(placement) << placement.error().message;
  EXPECT_EQ(placement->host_of(10239), "a-cluster-with-rather-long-names-10240");
}

TEST(DistinctHosts, AreInTheOrderOfFirstMention) {
  const auto names = [](std::initializer_list<const char*> lists) {
    std::vector<Component> components;
    for (const char* const list : lists) components.push_back({1, 1, list});
    return distinct_hosts(components).value().expand();
  };
  EXPECT_EQ(names({"node[1-2]", "node3"}), (Names{"node1", "node2", "node3"}));
  EXPECT_EQ(names({"node1", "node[1-2]"}), (Names{"node1", "node2"}));
  EXPECT_EQ(names({"node3", "node[1-2]", "node[2-3]"}), (Names{"node3", "node1", "node2"}));
  EXPECT_FALSE(distinct_hosts(std::vector<Component>{{1, 1, "node[1-"}}));
  EXPECT_FALSE(distinct_hosts(std::vector<Component>(5000, {1, 1, "n[1-1048576]"}))) << "in no time";
}

TEST(Components, TogetherHaveNoMoreHostsThanSlurm) {
  const std::vector<Component> most = {{1, 1, "n[0-65535]"}};
  EXPECT_TRUE(distinct_hosts(most));
  const std::vector<Component> more = {{1, 1, "n[0-65535]"}, {2, 1, "n0"}};
  const auto refused = distinct_hosts(more);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::limit);
}

}  // namespace
}  // namespace amldist::launch::components_test
