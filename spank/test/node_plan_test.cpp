// What a node plans from its facts: no Slurm, no network, no file.
#include "spank/stepd/node_plan.hpp"

#include "launch/option/spec.hpp"
#include "support.hpp"

namespace amldist::spank {
namespace {

using testing::environment;
using testing::Variables;

constexpr std::uint16_t master_port = 20100;
const Variables with_token = {{step::report_variable, step::ReportChannel{9, 0xabc}.to_string()},
                              {"MASTER_PORT", std::to_string(master_port)}};

/// Of four tasks on node1 and node2, two on each; this node's are `ranks`.
NodeFacts facts_of(std::vector<std::uint32_t> ranks) {
  auto hosts = Hostlist::parse("node[1-2]");
  auto map = launch::TaskMap::parse("(vector,(0,2,2))", 4, 2);
  const std::uint32_t node = ranks.empty() ? 0 : ranks.front() / 2;
  return {.items = {.job_id = 7, .step_id = 1, .node = node, .nodes = 2, .tasks = 4, .ranks = ranks},
          .user = {1000, 1000},
          .step = {{std::move(*hosts), std::move(*map), launch::Provenance::exact, "test", true},
                   "10.0.0.1",
                   *PortRanges::parse("20000-20999"),
                   7,
                   std::move(ranks),
                   {},
                   {}},
          .peer = Ipv4::parse("10.0.0.2")};
}

Result<NodePlan> planned(const NodeFacts& facts, std::string_view option = "pytorch", const Variables& extra = {},
                         const launch::SitePolicy& site = {}) {
  Variables variables = with_token;
  for (const auto& [name, value] : extra) variables[name] = value;
  return plan_node(facts, *launch::parse_spec(option), site, environment(variables));
}

TEST(NodePlan, ClaimsThePortsOnWhichThisNodesRanksListen) {
  using Ports = std::vector<std::uint16_t>;
  struct Case {
    const char* option;
    std::vector<std::uint32_t> ranks;
    const char* master;  ///< what the user set; nullptr: nothing
    Ports ports;
  };
  const Case cases[] = {
      {"pytorch", {0, 1}, nullptr, {20100}},
      {"pytorch", {2, 3}, nullptr, {}},
      {"pytorch", {}, nullptr, {}},
      {"pytorch", {0, 1}, "node1", {20100}},
      {"pytorch", {0, 1}, "node1.cluster", {20100}},
      {"pytorch", {0, 1}, "10.0.0.1", {20100}},
      {"pytorch", {0, 1}, "10.0.0.9", {}},  // a server elsewhere
      {"tensorflow", {0, 1}, nullptr, {20100, 20101}},
      {"tensorflow", {2, 3}, nullptr, {20100, 20101}},
      {"tensorflow", {0, 1}, "elsewhere", {20101}},
  };
  for (const Case& each : cases) {
    NodeFacts facts = facts_of(each.ranks);
    facts.own_addresses = {IpAddress(*Ipv4::parse("10.0.0.1"))};
    const auto plan =
        planned(facts, each.option, each.master != nullptr ? Variables{{"MASTER_ADDR", each.master}} : Variables{});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->ports, each.ports) << each.option << " " << (each.master != nullptr ? each.master : "-");
  }
}

TEST(NodePlan, LetsTheNodeOfRank0OrTheFirstServerStandInForSrun) {
  struct Case {
    const char* option;
    std::vector<std::uint32_t> ranks;
    bool stands_in;
    std::uint16_t port;
  };
  const Case cases[] = {{"pytorch", {0, 1}, true, 20100},
                        {"pytorch", {2, 3}, false, 20100},
                        {"tensorflow,worker_count=3,parameter_server_count=1", {0, 1}, false, 20101},
                        {"tensorflow,worker_count=3,parameter_server_count=1", {2, 3}, true, 20101}};
  for (const Case& each : cases) {
    NodeFacts facts = facts_of(each.ranks);
    facts.has_srun = false;
    facts.stand_in_address = *Ipv4::parse("10.0.0.7");
    const auto plan = planned(facts, each.option);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->stands_in, each.stands_in) << each.option;
    ASSERT_TRUE(plan->link_to_stand_in) << each.option;
    EXPECT_EQ(plan->link_to_stand_in->address.to_string(), "10.0.0.7");
    EXPECT_EQ(plan->link_to_stand_in->channel.port, each.port) << each.option;
    EXPECT_EQ(plan->link_to_stand_in->channel.token, 0xabcU);
    EXPECT_EQ(plan->no_stand_in, "");
  }
}

TEST(NodePlan, SaysOnOneNodeThatNobodyCanStandInForSrun) {
  for (const bool has_address : {false, true}) {
    for (const std::uint32_t first : {0U, 2U}) {
      NodeFacts facts = facts_of({first, first + 1});
      facts.has_srun = false;
      if (!has_address) facts.stand_in_address = Error{Errc::unavailable, "no address"};
      const auto plan = planned(facts, "pytorch", has_address ? Variables{{step::report_variable, ""}} : Variables{});
      ASSERT_TRUE(plan);
      EXPECT_FALSE(plan->link_to_stand_in);
      EXPECT_FALSE(plan->stands_in);
      EXPECT_EQ(plan->no_stand_in.find(has_address ? "srun sent no token" : "no address") != std::string::npos,
                first == 0)
          << plan->no_stand_in;
    }
  }
}

TEST(NodePlan, RefusesAMasterThatOtherNodesCannotReach) {
  NodeFacts facts = facts_of({0, 1});
  facts.step.address = "node1";
  facts.address_in_hosts = Ipv4::parse("127.0.1.1");
  const auto by_name = planned(facts);
  ASSERT_FALSE(by_name);
  EXPECT_EQ(by_name.error().message,
            "MASTER_ADDR=node1 is 127.0.1.1 in /etc/hosts on node1, so the other nodes could not reach it: use "
            "master_addr=ip, or correct that file");
  EXPECT_FALSE(planned(facts_of({0, 1}), "pytorch", {{"MASTER_ADDR", "localhost"}}));
  EXPECT_TRUE(planned(facts_of({2, 3}), "pytorch", {{"MASTER_ADDR", "localhost"}})) << "rank 0's node says it";
}

TEST(NodePlan, TellsGlooTheInterfaceWhereTheNodesOwnNameIsLoopback) {
  NodeFacts facts = facts_of({0, 1});
  facts.interface_to_peer = "eth1";
  EXPECT_EQ(planned(facts)->step.gloo_interface, "");
  facts.own_name_is_loopback = true;
  EXPECT_EQ(planned(facts)->step.gloo_interface, "eth1");
  EXPECT_EQ(planned(facts)->notes.size(), 1U) << "MASTER_PORT is kept";
  EXPECT_EQ(planned(facts, "pytorch", {{"GLOO_SOCKET_IFNAME", "ib0"}})->notes.size(), 2U);
  facts.peer = Ipv4::parse("127.0.0.1");  // several slurmd on one machine
  EXPECT_EQ(planned(facts)->step.gloo_interface, "");
}

TEST(NodePlan, TakesThePartitionsPolicies) {
  auto site = launch::SitePolicy{};
  site.secret = launch::SecretPolicy::require;
  EXPECT_FALSE(planned(facts_of({0, 1}))->fabric);
  EXPECT_FALSE(planned(facts_of({0, 1}))->requires_secret);
  EXPECT_TRUE(planned(facts_of({0, 1}), "pytorch", {}, site)->requires_secret);
  const auto plan = planned(facts_of({2, 3}), "pytorch,rdma=require,trace");
  ASSERT_TRUE(plan && plan->fabric);
  EXPECT_EQ(plan->fabric->policy, launch::RdmaPolicy::require);
  EXPECT_TRUE(plan->trace.on);
  EXPECT_EQ(plan->host, "node2");
  EXPECT_EQ(plan->step.step_name, "7.1");
}

TEST(NodePlan, RefusesCountsThatAreNotTheSteps) { EXPECT_FALSE(planned(facts_of({0, 1}), "pytorch,process_count=8")); }

}  // namespace
}  // namespace amldist::spank
