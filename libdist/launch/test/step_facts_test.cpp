#include "launch/placement/step_facts.hpp"

#include "support.hpp"

namespace amldist::launch {
namespace {

using testing::environment;
using Ranks = std::vector<std::uint32_t>;

TEST(Placement, IsDerivedFromTheStepsOwnVariables) {
  const Ranks here = {2, 3};
  const auto placement =
      read_placement(environment({{"SLURM_STEP_NODELIST", "n[1-4]"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"},
                                  {"SLURM_JOB_NODELIST", "other[1-9]"},  // the job's: must not be believed
                                  {"SLURM_NTASKS", "99"}}),
                     std::nullopt, {1, 4, 8, here});
  ASSERT_TRUE(placement) << placement.error().message;
  EXPECT_EQ(placement->provenance, Provenance::derived);
  EXPECT_EQ(placement->source, "SLURM_STEP_TASKS_PER_NODE, block");
  EXPECT_EQ(placement->master_host(), "n1");
  EXPECT_EQ(placement->host_of(7), "n4");
}

TEST(Placement, TakesTheExactMapFirst) {
  const Ranks here = {0, 2};
  const auto placement =
      read_placement(environment({{"SLURM_STEP_NODELIST", "n[1-3]"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2),2"}}),
                     "(vector,(2,1,1),(0,1,1),(2,1,1),(1,1,1))", {2, 3, 4, here});
  ASSERT_TRUE(placement) << placement.error().message;
  EXPECT_EQ(placement->provenance, Provenance::exact);
  EXPECT_EQ(placement->master_host(), "n3");
}

TEST(Placement, RefusesAMapThatTheNodeKnowsToBeWrong) {
  const Ranks here = {1, 5};  // the node runs cyclic
  const auto derived =
      read_placement(environment({{"SLURM_STEP_NODELIST", "n[1-4]"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}}),
                     std::nullopt, {1, 4, 8, here});
  ASSERT_FALSE(derived);
  EXPECT_EQ(derived.error().code, Errc::mismatch);
  const auto given =
      read_placement(environment({{"SLURM_STEP_NODELIST", "n[1-4]"}}), "(vector,(0,4,2))", {1, 4, 8, here});
  ASSERT_FALSE(given);
  testing::expect_sentence(given.error().message);
}

TEST(Placement, NeverGuesses) {
  const Ranks here = {0};
  const SlurmNodeView own_node{0, 2, 2, here};
  const testing::Variables good = {{"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
  ASSERT_TRUE(read_placement(environment(good), std::nullopt, own_node));
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"SLURM_STEP_NODELIST", "n[1-3]"},
      {"SLURM_STEP_NODELIST", "n["},
      {"SLURM_STEP_NODELIST", ""},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
      {"SLURM_STEP_TASKS_PER_NODE", "67108864"},
      {"SLURM_STEP_TASKS_PER_NODE", "x"},
      {"SLURM_DISTRIBUTION", "arbitrary"},
      {"SLURM_DISTRIBUTION", "unheard-of"},
      {"SLURM_DISTRIBUTION", "plane"},
  };
  for (const auto& [name, value] : changes) {
    testing::Variables variables = good;
    variables[name] = value;
    const auto placement = read_placement(environment(variables), std::nullopt, own_node);
    ASSERT_FALSE(placement) << name << "=" << value;
    testing::expect_sentence(placement.error().message);
  }
  for (const auto& [name, value] : good) {
    testing::Variables variables = good;
    variables.erase(name);
    EXPECT_FALSE(read_placement(environment(variables), std::nullopt, own_node)) << "without " << name;
  }
}

TEST(JobName, ReadsClusterAndRestarts) {
  const JobName name = read_job_name(environment({{"SLURM_CLUSTER_NAME", "c"}, {"SLURM_RESTART_COUNT", "2"}}), 11);
  EXPECT_EQ(name.cluster, "c");
  EXPECT_EQ(name.job_id, 11U);
  EXPECT_EQ(name.restarts, 2U);
  EXPECT_EQ(read_job_name(environment({{"SLURM_RESTART_COUNT", "many"}}), 11).restarts, 0U);
}

}  // namespace
}  // namespace amldist::launch
