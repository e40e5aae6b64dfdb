#include "launch/frameworks/advice.hpp"

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
  EXPECT_NE(gpus("pytorch", 4, {{"CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2"}}).find("--ntasks-per-node=2"),
            std::string::npos);
  EXPECT_NE(gpus("mpi", 2, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"}}).find("6 stay idle"), std::string::npos);
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
