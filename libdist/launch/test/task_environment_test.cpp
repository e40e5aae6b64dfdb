// Golden environments: input is a step, output the complete change to one task's environment.
#include "launch/frameworks/task_environment.hpp"

#include "support.hpp"

namespace amldist::launch::task_environment_test {
namespace {

using testing::applied;
using testing::environment;
using testing::Variables;

Placement placement(const char* hosts, std::vector<std::uint32_t> node_of_rank) {
  auto list = Hostlist::parse(hosts).value();
  auto map = TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(list.size())).value();
  return {std::move(list), std::move(map), Provenance::exact, "test"};
}

StepPlan plan(const char* option, Placement where) {
  return {
      parse_spec(option).value(), std::move(where), {"10.0.0.1", 20001, Origin::computed, Origin::computed}, "12.3"};
}

Variables task(const StepPlan& step, std::uint32_t rank, const Variables& inherited = {}) {
  const auto patch = task_environment(step, rank, environment(inherited));
  EXPECT_TRUE(patch) << (patch ? "" : patch.error().message);
  return patch ? applied(*patch, inherited) : Variables{};
}

std::string stamp(const StepPlan& step) {
  return "12.3 kind=" + std::string(to_string(step.spec.kind)) +
         " nodes=" + std::to_string(step.placement.map.nodes()) + " map=" + step.placement.map.to_string() +
         " MASTER_ADDR=10.0.0.1 MASTER_PORT=20001";
}

TEST(TaskEnvironment, PytorchPerProcess) {
  const StepPlan step = plan("pytorch,backend=gloo", placement("n[1-2]", {0, 0, 0, 1}));
  EXPECT_EQ(task(step, 3), (Variables{{"MASTER_ADDR", "10.0.0.1"},
                                      {"MASTER_PORT", "20001"},
                                      {"RANK", "3"},
                                      {"WORLD_SIZE", "4"},
                                      {"LOCAL_RANK", "0"},
                                      {"LOCAL_WORLD_SIZE", "1"},
                                      {"NODE_RANK", "1"},
                                      {"GROUP_RANK", "1"},
                                      {"GROUP_WORLD_SIZE", "2"},
                                      {"AZ_BATCH_MASTER_NODE", "10.0.0.1:20001"},
                                      {"AMLDIST_BACKEND", "gloo"},
                                      {"AMLDIST_STAMP", stamp(step)}}));
}

TEST(TaskEnvironment, NoNameOfAnotherKindTellsAnotherIdentity) {
  // Left by a profile, an outer mpirun or a container. They have no stamp, and none can be right.
  const Variables stray = {{"TF_CONFIG", "{}"},
                           {"JAX_COORDINATOR_ADDRESS", "old:1"},
                           {"OMPI_COMM_WORLD_RANK", "7"},
                           {"OMPI_COMM_WORLD_SIZE", "9"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "7"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                           {"AZ_BATCHAI_MPI_MASTER_NODE", "old"},
                           {"AZ_BATCH_HOST_LIST", "old,older"},
                           {"PET_NNODES", "9"},
                           {"JAX_LOCAL_DEVICE_IDS", "2,3"}};
  const Variables clean = task(plan("pytorch", placement("n[1-2]", {0, 1})), 1);
  Variables expected = clean;
  expected["JAX_LOCAL_DEVICE_IDS"] = "2,3";  // a choice of devices, and no identity
  EXPECT_EQ(task(plan("pytorch", placement("n[1-2]", {0, 1})), 1, stray), expected);
}

TEST(TaskEnvironment, AStepWithoutAKindKeepsNothingOfAnOuterOne) {
  const Variables user = {{"HOME", "/home/u"}, {"SLURM_NTASKS_PER_NODE", "1"}, {"NCCL_DEBUG", "WARN"}};
  for (const char* const option : {"pytorch", "mpi", "tensorflow", "jax", "ray"}) {
    const StepPlan step = plan(option, placement("n[1-4]", {0, 1, 2, 3}));
    const Variables inside = task(step, 1, user);
    EXPECT_EQ(applied(without_outer_step(environment(inside)), inside), user) << option;
  }
  Variables by_hand = task(plan("pytorch", placement("n1", {0})), 0, user);
  by_hand["MASTER_ADDR"] = "my.host";
  EXPECT_EQ(applied(without_outer_step(environment(by_hand)), by_hand).at("MASTER_ADDR"), "my.host");
  EXPECT_EQ(without_outer_step(environment({{"RANK", "3"}})).changes().size(), 0U) << "no step of ours";
}

TEST(TaskEnvironment, TheStampLeavesAMapOutThatTheNodeListDoesNotExplain) {
  Placement joined = placement("n[1-2]", {1, 0});
  joined.in_node_order = false;  // a heterogeneous step
  const StepPlan step = plan("pytorch", std::move(joined));
  EXPECT_EQ(task(step, 0).at("AMLDIST_STAMP"), "12.3 kind=pytorch nodes=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=20001");
  std::vector<std::uint32_t> irregular;
  for (std::uint32_t i = 0; i < 400; ++i) irregular.push_back(i % 7 == 0 ? 1 : i % 2);
  EXPECT_EQ(task(plan("pytorch", placement("n[1-2]", irregular)), 0).at("AMLDIST_STAMP").find("map="),
            std::string::npos);
}

TEST(TaskEnvironment, IsReadBackFromARunningTask) {
  const StepPlan step = plan("pytorch,launch=per-node,backend=nccl", placement("n[1-2]", {0, 1}));
  const Variables others = {{"PATH", "/bin"}, {"GLOO_SOCKET_IFNAME", "the-users-own"}, {"SLURM_NTASKS", "2"}};
  Variables expected = task(step, 1, others);
  const auto own = applied(own_variables(environment(expected)));
  for (const auto& [name, value] : others) expected.erase(name);
  EXPECT_EQ(own, expected);
}

TEST(TaskEnvironment, PytorchPerNode) {
  const StepPlan step = plan("pytorch,launch=per-node,nproc_per_node=4", placement("n[1-2]", {0, 1}));
  const Variables inherited = {{"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "3"}, {"PMIX_RANK", "1"},
                               {"SLURM_PROCID", "1"}, {"WORLD_SIZE", "77"},   {"LOCAL_RANK", "7"}};
  EXPECT_EQ(task(step, 1, inherited), (Variables{{"MASTER_ADDR", "10.0.0.1"},
                                                 {"MASTER_PORT", "20001"},
                                                 {"NODE_RANK", "1"},
                                                 {"PET_NNODES", "2"},
                                                 {"PET_NODE_RANK", "1"},
                                                 {"PET_NPROC_PER_NODE", "4"},
                                                 {"PET_MASTER_ADDR", "10.0.0.1"},
                                                 {"PET_MASTER_PORT", "20001"},
                                                 {"AZ_BATCH_MASTER_NODE", "10.0.0.1:20001"},
                                                 {"SLURM_NTASKS_PER_NODE", "1"},
                                                 {"SLURM_PROCID", "1"},
                                                 {"AMLDIST_HIDDEN_SLURM_NTASKS", "2"},
                                                 {"AMLDIST_HIDDEN_SLURM_STEP_ID", "3"},
                                                 {"AMLDIST_HIDDEN_PMIX_RANK", "1"},
                                                 {"AMLDIST_STAMP", stamp(step)}}));
}

TEST(TaskEnvironment, PerNodeCountsTheGpusThatTheLauncherSees) {
  const auto launcher = [](const char* option, const Variables& inherited) {
    return task(plan(option, placement("n[1-2]", {0, 1})), 0, inherited).at("PET_NPROC_PER_NODE");
  };
  EXPECT_EQ(launcher("pytorch,launch=per-node", {}), "1");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), "4");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b"}}), "1");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"CUDA_VISIBLE_DEVICES", ""}}), "1");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}), "1");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"ROCR_VISIBLE_DEVICES", "0,1"}}), "2");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"ZE_AFFINITY_MASK", "0.0,0.1"}}), "2");
  EXPECT_EQ(launcher("pytorch,launch=per-node", {{"SLURM_STEP_GPUS", "4,5"}}), "2");
  EXPECT_EQ(launcher("pytorch,launch=per-node,nproc_per_node=gpu", {{"CUDA_VISIBLE_DEVICES", "0"}}), "gpu");
}

TEST(TaskEnvironment, SlurmEnvKeepHidesNothing) {
  const StepPlan step = plan("pytorch,launch=per-node,slurm_env=keep", placement("n[1-2]", {0, 1}));
  EXPECT_EQ(task(step, 0, {{"SLURM_NTASKS", "2"}}).at("SLURM_NTASKS"), "2");
}

TEST(TaskEnvironment, Mpi) {
  const StepPlan step = plan("mpi", placement("n[1-2]", {1, 0, 1, 0}));
  EXPECT_EQ(task(step, 2), (Variables{{"MASTER_ADDR", "10.0.0.1"},
                                      {"MASTER_PORT", "20001"},
                                      {"MASTER_ADDRESS", "10.0.0.1"},
                                      {"RANK", "2"},
                                      {"WORLD_SIZE", "4"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "2"},
                                      {"NODE_RANK", "0"},
                                      {"OMPI_COMM_WORLD_RANK", "2"},
                                      {"OMPI_COMM_WORLD_SIZE", "4"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                      {"AZ_BATCH_MASTER_NODE", "10.0.0.1:20001"},
                                      {"AZ_BATCHAI_MPI_MASTER_NODE", "10.0.0.1"},
                                      {"AZ_BATCH_HOST_LIST", "n2,n1"},
                                      {"AZUREML_NODE_COUNT", "2"},
                                      {"AZUREML_CR_NODE_RANK", "0"},
                                      {"SLURM_NTASKS_PER_NODE", "2"},
                                      {"AMLDIST_STAMP", stamp(step)}}));
}

TEST(TaskEnvironment, MpiPerNodeHasNoRank) {
  const Variables env = task(plan("mpi,launch=per-node", placement("n[1-2]", {0, 1})), 1);
  for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    EXPECT_FALSE(env.contains(name));
  EXPECT_EQ(env.at("OMPI_COMM_WORLD_RANK"), "1");
}

TEST(TaskEnvironment, TensorflowInExactlyAzuresShape) {
  const Variables env = task(plan("tensorflow", placement("n[1-2]", {0, 1})), 0);
  EXPECT_EQ(
      env.at("TF_CONFIG"),
      R"({"cluster":{"worker":["10.0.0.1:20001","n2:20001"]},"task":{"type":"worker","index":0},"environment":"cloud"})");
  EXPECT_EQ(env.at("RANK"), "0");
}

TEST(TaskEnvironment, TensorflowDealsRolesAndPorts) {
  const StepPlan step = plan("tensorflow,chief_count=1,worker_count=2,parameter_server_count=2,evaluator_count=1",
                             placement("n[1-2]", {0, 0, 0, 1, 1, 1}));
  const std::string cluster =
      R"({"cluster":{"chief":["10.0.0.1:20001"],"worker":["10.0.0.1:20002","10.0.0.1:20003"],"ps":["n2:20001","n2:20002"]},"task":)";
  const std::vector<std::string> roles = {R"({"type":"chief","index":0})",  R"({"type":"worker","index":0})",
                                          R"({"type":"worker","index":1})", R"({"type":"ps","index":0})",
                                          R"({"type":"ps","index":1})",     R"({"type":"evaluator","index":0})"};
  for (std::uint32_t rank = 0; rank < roles.size(); ++rank) {
    EXPECT_EQ(task(step, rank).at("TF_CONFIG"), cluster + roles[rank] + R"(,"environment":"cloud"})");
  }
}

TEST(TaskEnvironment, TensorflowNamesAllNodesByTheRuleOfTheMaster) {
  StepPlan step = plan("tensorflow", placement("n[1-3]", {0, 0, 1, 2, 2}));
  const auto workers = [&] {
    const std::string config = task(step, 0).at("TF_CONFIG");
    return config.substr(0, config.find("},"));
  };
  step.rendezvous.node_hosts = *NodeHosts::parse("0.0.0.0,10.0.0.2-10.0.0.3");
  EXPECT_EQ(workers(), R"({"cluster":{"worker":["10.0.0.1:20001","10.0.0.1:20002","10.0.0.2:20001","10.0.0.3:20001",)"
                       R"("10.0.0.3:20002"])");
  step.rendezvous.address = "n1-ib0";
  step.rendezvous.node_hosts = NodeHosts::names("-ib0");
  EXPECT_EQ(workers(),
            R"({"cluster":{"worker":["n1-ib0:20001","n1-ib0:20002","n2-ib0:20001","n3-ib0:20001","n3-ib0:20002"])");
}

TEST(TaskEnvironment, TensorflowWithoutCountsIsAllWorkers) {
  const auto env = task(plan("tensorflow,parameter_server_count=1", placement("n[1-3]", {0, 1, 2})), 2);
  EXPECT_NE(env.at("TF_CONFIG").find(R"("task":{"type":"ps","index":0})"), std::string::npos);
}

TEST(TaskEnvironment, AVariableOverTheKernelsLimitIsAnErrorThatSaysSo) {
  std::vector<std::uint32_t> node_of_rank(10240);
  for (std::uint32_t i = 0; i < node_of_rank.size(); ++i) node_of_rank[i] = i;
  const auto patch =
      task_environment(plan("tensorflow", placement("node[00001-10240]", node_of_rank)), 0, environment({}));
  ASSERT_FALSE(patch);
  EXPECT_EQ(patch.error().code, Errc::limit);
  EXPECT_NE(patch.error().message.find("TF_CONFIG would be"), std::string::npos) << patch.error().message;
}

TEST(TaskEnvironment, JaxIsToldItsCoordinatorAndItsOwnGpus) {
  const StepPlan step = plan("jax", placement("n[1-2]", {0, 0, 1, 1}));
  EXPECT_EQ(task(step, 1).at("JAX_COORDINATOR_ADDRESS"), "10.0.0.1:20001");
  EXPECT_FALSE(task(step, 1).contains("JAX_LOCAL_DEVICE_IDS"));
  EXPECT_EQ(task(step, 1, {{"CUDA_VISIBLE_DEVICES", "3"}}).at("JAX_LOCAL_DEVICE_IDS"), "0");
  EXPECT_EQ(task(step, 1, {{"CUDA_VISIBLE_DEVICES", "2,3"}, {"SLURM_GPUS_PER_TASK", "2"}}).at("JAX_LOCAL_DEVICE_IDS"),
            "0,1");
  EXPECT_FALSE(task(step, 1, {{"CUDA_VISIBLE_DEVICES", "0,1"}}).contains("JAX_LOCAL_DEVICE_IDS"))
      << "all tasks see all GPUs: JAX's own choice, LOCALID, is right";
}

TEST(TaskEnvironment, RayCountsNodesAndHidesRanks) {
  const StepPlan step = plan("ray", placement("n[1-2]", {0, 1}));
  const Variables inherited = {{"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "3"}, {"RANK", "7"}, {"RAY_ADDRESS", "old:1"}};
  EXPECT_EQ(task(step, 1, inherited), (Variables{{"MASTER_ADDR", "10.0.0.1"},
                                                 {"MASTER_PORT", "20001"},
                                                 {"NODE_RANK", "1"},
                                                 {"WORLD_SIZE", "2"},
                                                 {"RAY_ADDRESS", "10.0.0.1:20001"},
                                                 {"AZ_BATCH_MASTER_NODE", "10.0.0.1:20001"},
                                                 {"SLURM_NTASKS_PER_NODE", "1"},
                                                 {"AMLDIST_HIDDEN_SLURM_NTASKS", "2"},
                                                 {"AMLDIST_HIDDEN_SLURM_STEP_ID", "3"},
                                                 {"AMLDIST_STAMP", stamp(step)}}));
  const auto two = check_counts(parse_spec("ray").value(), placement("n1", {0, 0}).map);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("use srun --ntasks-per-node=1"), std::string::npos) << two.error().message;
}

TEST(TaskEnvironment, ARayAddressOfTheUsersStaysInOtherKinds) {
  const StepPlan step = plan("pytorch", placement("n[1-2]", {0, 1}));
  EXPECT_EQ(task(step, 0, {{"RAY_ADDRESS", "ray://far:1"}}).at("RAY_ADDRESS"), "ray://far:1");
  const Variables inside = task(plan("ray", placement("n[1-2]", {0, 1})), 0);
  EXPECT_FALSE(task(step, 0, inside).contains("RAY_ADDRESS")) << "an outer step's";
}

TEST(TaskEnvironment, NoneChangesNothing) {
  EXPECT_TRUE(task_environment(plan("none", placement("n1", {0})), 0, environment({}))->changes().empty());
}

TEST(TaskEnvironment, WhatAnotherStepLeftBehindIsReplacedOrRemoved) {
  const StepPlan step = plan("pytorch", placement("n[1-2]", {0, 1}));
  const Variables env = task(step, 0,
                             {{"RANK", "9"},
                              {"PET_NNODES", "9"},
                              {"TF_CONFIG", "{}"},
                              {"OMPI_COMM_WORLD_RANK", "9"},
                              {"AMLDIST_STAMP", "12.0 MASTER_ADDR=x MASTER_PORT=1"},
                              {"HOME", "/root"}});
  EXPECT_EQ(env.at("RANK"), "0");
  EXPECT_FALSE(env.contains("PET_NNODES"));
  EXPECT_FALSE(env.contains("TF_CONFIG"));
  EXPECT_FALSE(env.contains("OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(env.at("HOME"), "/root");
}

TEST(TaskEnvironment, TasksPerNodeIsTheStepsOwn) {
  EXPECT_EQ(task(plan("pytorch", placement("n[1-2]", {0, 0, 1, 1})), 0, {{"SLURM_NTASKS_PER_NODE", "9"}})
                .at("SLURM_NTASKS_PER_NODE"),
            "2");
  EXPECT_FALSE(task(plan("pytorch", placement("n[1-2]", {0, 0, 1})), 0, {{"SLURM_NTASKS_PER_NODE", "9"}})
                   .contains("SLURM_NTASKS_PER_NODE"));
}

TEST(TaskEnvironment, GlooIsToldItsInterfaceUnlessTheUserDid) {
  StepPlan step = plan("pytorch", placement("n[1-2]", {0, 1}));
  EXPECT_FALSE(task(step, 0).contains("GLOO_SOCKET_IFNAME"));
  step.gloo_interface = "eth0";
  EXPECT_EQ(task(step, 0).at("GLOO_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(task(step, 0, {{"GLOO_SOCKET_IFNAME", "ib0"}}).at("GLOO_SOCKET_IFNAME"), "ib0");
  const Variables stale = {{"GLOO_SOCKET_IFNAME", "ib0"}, {"AMLDIST_STAMP", "1.0 GLOO_SOCKET_IFNAME=ib0"}};
  EXPECT_EQ(task(step, 0, stale).at("GLOO_SOCKET_IFNAME"), "eth0");
  step.gloo_interface.clear();
  EXPECT_FALSE(task(step, 0, stale).contains("GLOO_SOCKET_IFNAME"));
}

TEST(Counts, AreAssertionsThatNameBothNumbers) {
  const Placement two_by_two = placement("n[1-2]", {0, 0, 1, 1});
  const Placement uneven = placement("n[1-2]", {0, 0, 1});
  struct Case {
    const char* option;
    const Placement& where;
    std::vector<const char*> says;  ///< empty: accepted
  };
  for (const Case& c : std::vector<Case>{
           {"pytorch,node_count=2,process_count=4,process_count_per_node=2", two_by_two, {}},
           {"pytorch,process_count=8", two_by_two, {"process_count=8", "4 tasks", "srun -n8"}},
           {"pytorch,node_count=3", two_by_two, {"node_count=3", "2 nodes", "srun -N3"}},
           {"mpi,process_count_per_instance=4",
            two_by_two,
            {"process_count_per_instance=4", "2 tasks", "--ntasks-per-node=4"}},
           {"mpi,process_count_per_node=2", uneven, {"=2", "different numbers"}},
           {"pytorch,launch=per-node", two_by_two, {"one launcher per node", "2 tasks", "--ntasks-per-node=1"}},
           {"tensorflow,worker_count=3,parameter_server_count=1", two_by_two, {}},
           {"tensorflow,worker_count=2,parameter_server_count=1", two_by_two, {"3 tasks", "4 tasks"}},
           {"tensorflow,parameter_server_count=4", two_by_two, {"no task is left for a worker"}},
           {"tensorflow,parameter_server_count=2147483647,chief_count=1,evaluator_count=1", two_by_two, {"2147483649"}},
       }) {
    const auto result = check_counts(parse_spec(c.option).value(), c.where.map);
    EXPECT_EQ(result.ok(), c.says.empty()) << c.option;
    if (result) continue;
    testing::expect_sentence(result.error().message);
    for (const char* const word : c.says) {
      EXPECT_NE(result.error().message.find(word), std::string::npos) << word << " not in " << result.error().message;
    }
  }
}

}  // namespace
}  // namespace amldist::launch::task_environment_test
