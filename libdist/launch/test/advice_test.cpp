#include "launch/frameworks/advice.hpp"

#include "launch/frameworks/visible_gpus.hpp"
#include "support.hpp"

namespace amldist::launch {
namespace {

using testing::environment;

Identity with_local_size(std::uint32_t tasks) { return {0, tasks * 2, 0, tasks, 0, 2}; }

std::string gpus(const char* option, std::uint32_t tasks, const testing::Variables& variables) {
  const auto advice = gpu_advice(parse_spec(option).value(), with_local_size(tasks), environment(variables));
  if (advice) testing::expect_sentence(*advice);
  return advice.value_or("");
}

TEST(GpuAdvice, IsSilentWhenTasksAndGpusFit) {
  EXPECT_EQ(gpus("pytorch", 4, {}), "");
  EXPECT_EQ(gpus("pytorch", 4, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), "");
  EXPECT_EQ(gpus("pytorch", 1, {{"CUDA_VISIBLE_DEVICES", "5"}}), "");
  EXPECT_EQ(gpus("pytorch,launch=per-node", 1, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), "");
  EXPECT_EQ(gpus("jax", 4, {{"CUDA_VISIBLE_DEVICES", "0"}}), "");
}

TEST(GpuAdvice, SpeaksForEveryVendorWhenTheyDoNot) {
  for (const char* const name :
       {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_STEP_GPUS"}) {
    EXPECT_NE(gpus("pytorch", 4, {{name, "3"}}).find("LOCAL_RANK goes up to 3"), std::string::npos) << name;
  }
  EXPECT_NE(gpus("mpi", 2, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"}}).find("6 stay idle"), std::string::npos);
}

TEST(VisibleGpus, AreCountedAsTheRuntimesCountThem) {
  struct Case {
    testing::Variables variables;
    int count;  ///< -1: no variable
    const char* unseen = "";
  };
  constexpr const char* mig =
      "CUDA_VISIBLE_DEVICES lists 2 devices, but a process sees one MIG instance only: use --gpus-per-task=1, one task "
      "for each instance";
  const Case cases[] = {
      {{}, -1},
      {{{"CUDA_VISIBLE_DEVICES", ""}}, 0},
      {{{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}, 0},
      {{{"CUDA_VISIBLE_DEVICES", "-1"}}, 0},
      {{{"CUDA_VISIBLE_DEVICES", "0, 2"}}, 2},
      {{{"CUDA_VISIBLE_DEVICES", "0,1,-1,2"}}, 2},
      {{{"CUDA_VISIBLE_DEVICES", "0,1,x"}}, 2},
      {{{"CUDA_VISIBLE_DEVICES", "0,0"}}, 0},
      {{{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}}, 2},
      {{{"CUDA_VISIBLE_DEVICES", "MIG-a"}}, 1},
      {{{"CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b"}}, 1, mig},
      {{{"CUDA_VISIBLE_DEVICES", "MIG-GPU-a/1/0,MIG-GPU-a/2/0"}, {"SLURM_STEP_GPUS", "0,1"}}, 1, mig},
      // HIP's numbers, and CUDA's on AMD, are within ROCR's list.
      {{{"ROCR_VISIBLE_DEVICES", "4,5"}}, 2},
      {{{"ROCR_VISIBLE_DEVICES", "4,5"}, {"HIP_VISIBLE_DEVICES", "1"}}, 1},
      {{{"ROCR_VISIBLE_DEVICES", "4,5"}, {"CUDA_VISIBLE_DEVICES", "0"}}, 1},
      {{{"ROCR_VISIBLE_DEVICES", "4,5"}, {"HIP_VISIBLE_DEVICES", "4,5"}, {"CUDA_VISIBLE_DEVICES", "0,1"}},
       0,
       "HIP_VISIBLE_DEVICES lists 2 devices, of which 0 exist within the 2 of ROCR_VISIBLE_DEVICES: number them from "
       "0"},
      // What Slurm sets where it does not know the vendor.
      {{{"ROCR_VISIBLE_DEVICES", "4,5"}, {"CUDA_VISIBLE_DEVICES", "4,5"}, {"SLURM_STEP_GPUS", "4,5"}}, 2},
      {{{"ZE_AFFINITY_MASK", "0.0,0.1"}}, 2},
      {{{"SLURM_STEP_GPUS", "4,5"}}, 2},
      {{{"SLURM_STEP_GPUS", "1"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}},
       1,
       "CUDA_VISIBLE_DEVICES lists 4 devices, but Slurm has bound 1 (SLURM_STEP_GPUS): leave the variable to Slurm"},
      {{{"SLURM_STEP_GPUS", ""}, {"CUDA_VISIBLE_DEVICES", "0,1"}}, 2},
  };
  for (const Case& each : cases) {
    const auto shown = each.variables.empty() ? std::string() : each.variables.begin()->second;
    const auto gpus = visible_gpus(environment(each.variables));
    EXPECT_EQ(gpus ? static_cast<int>(*gpus) : -1, each.count) << shown;
    const auto unseen = unseen_gpus(environment(each.variables));
    EXPECT_EQ(unseen.value_or(""), each.unseen) << shown;
    if (unseen) testing::expect_sentence(*unseen);
  }
}

TEST(MpiAdvice, SpeaksOnlyWhenMpiWouldBeAlone) {
  const auto mpi = [](const char* option, const testing::Variables& variables) {
    return mpi_advice(parse_spec(option).value(), with_local_size(2), environment(variables)).has_value();
  };
  EXPECT_TRUE(mpi("mpi", {}));
  EXPECT_FALSE(mpi("mpi", {{"PMIX_RANK", "0"}}));
  EXPECT_FALSE(mpi("mpi", {{"PMI_RANK", "0"}}));
  EXPECT_FALSE(mpi("mpi,launch=per-node", {}));
  EXPECT_FALSE(mpi("pytorch", {}));
}

}  // namespace
}  // namespace amldist::launch
