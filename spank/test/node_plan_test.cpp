// What a node plans from its facts: no Slurm, no network, no file.
#include "spank/stepd/node_plan.hpp"

#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "support.hpp"

namespace amldist::spank {
namespace {

using testing::environment;
using testing::Variables;
using text::concat;

constexpr std::uint16_t master_port = 20100;
const Variables with_token = {{step::report_variable, step::ReportChannel{9, {0xabc}}.to_string()},
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
          .target_of =
              [](const std::string& name) {
                return name == "10.0.0.1" ? launch::NameTarget{launch::NameTarget::Where::here, name}
                                          : launch::NameTarget{launch::NameTarget::Where::elsewhere, name};
              },
          .peer = IpAddress::parse("10.0.0.2")};
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
    facts.address_of_stand_in = *IpAddress::parse("10.0.0.7");
    const auto plan = planned(facts, each.option);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->stands_in, each.stands_in) << each.option;
    ASSERT_TRUE(plan->stand_in) << each.option;
    EXPECT_EQ(plan->stand_in->address.to_string(), "10.0.0.7");
    EXPECT_EQ(plan->stand_in->channel.port, each.port) << each.option;
    EXPECT_EQ(plan->stand_in->channel.token, 0xabcU);
    EXPECT_EQ(plan->no_stand_in, "");
  }
}

TEST(NodePlan, SaysOnOneNodeThatNobodyCanStandInForSrun) {
  for (const bool has_address : {false, true}) {
    for (const std::uint32_t first : {0U, 2U}) {
      NodeFacts facts = facts_of({first, first + 1});
      facts.has_srun = false;
      if (!has_address) facts.address_of_stand_in = Error{Errc::unavailable, "no address"};
      const auto plan = planned(facts, "pytorch", has_address ? Variables{{step::report_variable, ""}} : Variables{});
      ASSERT_TRUE(plan);
      EXPECT_FALSE(plan->stand_in);
      EXPECT_FALSE(plan->stands_in);
      EXPECT_EQ(plan->no_stand_in.find(has_address ? "srun sent no token" : "no address") != std::string::npos,
                first == 0)
          << plan->no_stand_in;
    }
  }
}

using Where = launch::NameTarget::Where;

/// Facts of a node on which names lead where `names` says, and its own, node1, to `own`.
NodeFacts facts_with(launch::NameTarget own, std::map<std::string, launch::NameTarget> names = {},
                     std::vector<std::uint32_t> ranks = {0, 1}) {
  NodeFacts facts = facts_of(std::move(ranks));
  facts.own_name = "node1";
  facts.interface_to_peer = "eth1";
  names.emplace("node1", std::move(own));
  facts.target_of = [names = std::move(names)](const std::string& name) {
    const auto found = names.find(name);
    return found != names.end() ? found->second : launch::NameTarget{Where::nowhere};
  };
  return facts;
}

const launch::NameTarget here = {Where::here, "10.0.0.1"};
const launch::NameTarget debian = {Where::loopback, "127.0.1.1"};
const launch::NameTarget foreign = {Where::elsewhere, "10.9.9.9"};
const launch::NameTarget nowhere = {Where::nowhere};
const launch::NameTarget unanswered = {Where::unknown};

TEST(NodePlan, RefusesAMasterThatOtherNodesCannotReach) {
  struct Case {
    launch::NameTarget target;
    const char* said;
  };
  const Case cases[] = {{debian, "is 127.0.1.1 on node1"},
                        {foreign, "is 10.9.9.9 on node1"},
                        {nowhere, "does not resolve on node1"},
                        {here, nullptr},
                        {unanswered, nullptr}};
  for (const Case& each : cases) {
    NodeFacts facts = facts_with(each.target);
    facts.step.address = "node1";
    const auto plan = planned(facts);
    EXPECT_EQ(static_cast<bool>(plan), each.said == nullptr);
    if (plan) continue;
    EXPECT_EQ(plan.error().message, concat({"MASTER_ADDR=node1 ", each.said,
                                            ", rank 0's node, so the other nodes could not reach it: use "
                                            "master_addr=ip, or correct /etc/hosts or the name service"}));
    facts.peer = IpAddress::parse("127.0.0.1");  // several slurmd on one machine
    EXPECT_TRUE(planned(facts));
  }
  EXPECT_FALSE(planned(facts_of({0, 1}), "pytorch", {{"MASTER_ADDR", "localhost"}}));
  EXPECT_TRUE(planned(facts_of({2, 3}), "pytorch", {{"MASTER_ADDR", "localhost"}})) << "rank 0's node says it";
}

TEST(NodePlan, DoubtsAUsersMasterThatIsNotRankZerosHost) {
  const std::map<std::string, launch::NameTarget> names = {{"node2", {Where::elsewhere, "10.0.0.2"}},
                                                           {"10.0.0.2", {Where::elsewhere, "10.0.0.2"}},
                                                           {"alias", here},
                                                           {"10.0.0.1", here},
                                                           {"slow", unanswered}};
  struct Case {
    const char* master;
    const char* doubt;
  };
  const Case cases[] = {{"node1", ""},
                        {"alias", ""},
                        {"10.0.0.1", ""},
                        {"slow", ""},
                        {"node2", "it is 10.0.0.2, and rank 0 is on node1"},
                        {"10.0.0.2", "rank 0 is on node1, which does not have that address"},
                        {"my.host", "nobody resolves that name on node1, where rank 0 is"}};
  for (const Case& each : cases) {
    const std::string but = *each.doubt == '\0' ? "" : concat({", but ", each.doubt});
    const auto by_variable = planned(facts_with(here, names), "pytorch", {{"MASTER_ADDR", each.master}});
    EXPECT_EQ(by_variable->notes.front(), concat({"keeping your MASTER_ADDR=", each.master, " and MASTER_PORT=20100",
                                                  but, ": unset to let aml-dist choose"}));
    const auto by_key = planned(facts_with(here, names), concat({"pytorch,master_addr=", each.master}));
    EXPECT_EQ(by_key->notes.size(), but.empty() ? 1U : 2U) << each.master;
    const auto elsewhere = planned(facts_with(here, names, {2, 3}), "pytorch", {{"MASTER_ADDR", each.master}});
    EXPECT_EQ(elsewhere->notes.front().find(", but"), std::string::npos) << "rank 0's node says it";
  }
}

TEST(NodePlan, TellsGlooTheInterfaceWhereTheNodesOwnNameDoesNotLeadToIt) {
  EXPECT_EQ(planned(facts_with(here))->step.gloo_interface, "");
  for (const launch::NameTarget& own : {debian, foreign, nowhere, unanswered}) {
    NodeFacts facts = facts_with(own);
    EXPECT_EQ(planned(facts)->step.gloo_interface, "eth1") << own.address;
    EXPECT_EQ(planned(facts)->notes.size(), 1U) << "MASTER_PORT is kept";
    EXPECT_EQ(planned(facts)->note_without_gpus, "");
    EXPECT_EQ(planned(facts, "pytorch", {{"GLOO_SOCKET_IFNAME", "ib0"}})->notes.size(), 2U);
    EXPECT_NE(planned(facts, "jax")->note_without_gpus.find("own name node1"), std::string::npos);
    facts.peer = IpAddress::parse("127.0.0.1");  // several slurmd on one machine
    EXPECT_EQ(planned(facts)->step.gloo_interface, "");
  }
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
