#include "fabric/checks/bind.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "scratch.hpp"
#include "support.hpp"

namespace amldist::fabric::bind_test {
namespace {

/// Two NUMA nodes with four GPUs and a port each.
const DevicePlaces devices = {{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 1}, {5, 1}, {6, 1}, {7, 1}},
                              {{"mlx5_0", 0}, {"mlx5_1", 1}}};
constexpr NumaNodes first = 1;
constexpr NumaNodes second = 2;

/// Eight ranks, each with the GPU of its number; nodes of their processors by rank.
std::vector<RankPlace> ranks(const std::vector<NumaNodes>& processors) {
  std::vector<RankPlace> out;
  for (std::uint32_t rank = 0; rank < processors.size(); ++rank)
    out.push_back({rank, processors[rank], 0, static_cast<std::int32_t>(rank)});
  return out;
}

const std::vector<RankPlace> good = ranks({first, first, first, first, second, second, second, second});

std::string judged(const std::vector<RankPlace>& places) {
  const auto line = judge_places(places, devices, "node1");
  if (line) testing::expect_sentence(*line);
  return line.value_or("");
}

RankPlace with_port(RankPlace place, std::string_view port) {
  std::ranges::copy(port, place.port.begin());
  return place;
}

TEST(Bind, IsSilentWhereAllIsWell) {
  EXPECT_EQ(judged(good), "");
  EXPECT_EQ(judged({}), "");
  EXPECT_EQ(judged(ranks(std::vector<NumaNodes>(8, first | second))), "") << "not bound";
  EXPECT_EQ(judged(ranks(std::vector<NumaNodes>(8, 0))), "") << "not known";
  std::vector<RankPlace> without = ranks({first, first});
  for (RankPlace& rank : without) rank.gpu = -1;
  EXPECT_EQ(judged(without), "") << "no GPUs, or several for each";
  EXPECT_EQ(judge_places(good, {}, "node1"), std::nullopt) << "devices that are not known";
  EXPECT_EQ(judged({with_port(good[0], "mlx5_0"), with_port(good[4], "mlx5_1"), with_port(good[5], "mlx5_7")}), "");
}

TEST(Bind, NamesProcessorsThatAreFarFromTheGpu) {
  EXPECT_EQ(judged(ranks(std::vector<NumaNodes>(8, first))),
            "4 of 8 ranks on node1: GPU on NUMA node 1, processors on node 0: add --cpu-bind=map_ldom:0,0,0,0,1,1,1,1 "
            "to srun");
  EXPECT_EQ(judged(ranks({second})),
            "1 of 1 rank on node1: GPU on NUMA node 0, processors on node 1: add --cpu-bind=map_ldom:0 to srun");
}

TEST(Bind, NamesTasksThatShareAGpu) {
  auto places = ranks({first, first, first, first});
  for (RankPlace& rank : places) rank.gpu /= 2;  // map_gpu:0,0,1,1
  EXPECT_EQ(judged(places),
            "2 tasks on node1 use the same GPU, number 0 (ranks 0, 1): give each its own, with --gpus-per-task=1 or "
            "another --gpu-bind");
}

TEST(Bind, NamesMemoryAndPorts) {
  auto places = good;
  for (RankPlace& rank : places) rank.memory = first;
  EXPECT_EQ(judged(places),
            "4 of 8 ranks on node1: memory on NUMA node 0, processors on node 1: add --mem-bind=local to srun");
  EXPECT_EQ(judged({with_port(good[0], "mlx5_1")}),
            "1 of 1 rank on node1: port mlx5_1 on NUMA node 1, GPU on node 0: leave the choice to NCCL (NCCL_IB_HCA)");
}

TEST(Bind, DescribesEachRank) {
  EXPECT_EQ(describe_place(good[5], devices), "rank 5: processors on NUMA node 1, GPU 5 on node 1");
  EXPECT_EQ(describe_place({.rank = 3, .gpu = -1}, devices), "rank 3: processors on NUMA nodes that are not known");
  EXPECT_EQ(describe_place({.rank = 3, .processors = first | second, .memory = first, .gpu = -1}, devices),
            "rank 3: processors on NUMA nodes 0, 1, memory on node 0");
}

void write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << content;
}

TEST(RankPlace, IsReadFromATree) {
  const testing::ScratchFolder sys;
  write(sys / "devices/system/node/node0/cpulist", "0-3,8\n");
  write(sys / "devices/system/node/node1/cpulist", "4-7\n");
  write(sys / "devices/system/node/has_cpu", "0-1\n");
  write(sys / "bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  write(sys / "bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
  write(sys / "class/infiniband/mlx5_0/device/numa_node", "0\n");
  write(sys / "gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-8a5f\nDevice Minor: \t 1\n");
  write(sys / "gpus/0000:5e:00.0/information", "Device Minor: \t 0\n");
  write(sys / "gpus/0000:99:00.0/information", "Device Minor: \t x\n");
  const auto numa = read_numa(sys.path());
  ASSERT_EQ(numa.size(), 2U);
  EXPECT_TRUE(numa[0].processors[8] && numa[1].processors[4] && !numa[1].processors[8]);
  const auto gpus = read_numbered_gpus(sys / "gpus");
  EXPECT_EQ(gpus, (std::vector<NumberedGpu>{{0, "0000:5e:00.0", ""}, {1, "0000:3b:00.0", "GPU-8a5f"}}));
  const auto places = read_device_places(gpus, sys.path());
  EXPECT_EQ(places.gpus, (std::vector<std::pair<std::uint32_t, int>>{{0, -1}, {1, 1}}));
  EXPECT_EQ(places.ports, (std::vector<std::pair<std::string, int>>{{"mlx5_0", 0}}));
  write(sys / "dev/nvidia1", "");
  EXPECT_EQ(accessible_gpus(gpus, sys / "dev"), std::vector<std::uint32_t>{1});
}

TEST(RankPlace, TakesTheGpuThatTheVariableMeans) {
  const std::vector<NumberedGpu> gpus = {{0, "a", "GPU-00"}, {1, "b", "GPU-11"}, {2, "c", ""}, {3, "d", ""}};
  const std::vector<std::uint32_t> all = {0, 1, 2, 3}, one = {2};
  EXPECT_EQ(gpu_of_rank("3", 0, all, gpus), 3U) << "Slurm limits nothing: numbers of the node";
  EXPECT_EQ(gpu_of_rank("0,1,2,3", 2, all, gpus), 2U) << "the rank takes that of its local rank";
  EXPECT_EQ(gpu_of_rank("0", 1, one, gpus), 2U) << "a cgroup has left one, whose number is 0 in it";
  EXPECT_EQ(gpu_of_rank("GPU-11", 1, all, gpus), 1U);
  EXPECT_EQ(gpu_of_rank("1", 0, {}, {}), 1U) << "no driver tells of its GPUs";
  for (const std::string_view visible : {"", "NoDevFiles", "-1", "0,1", "MIG-1", "GPU-77", "7", "99999"})
    EXPECT_EQ(gpu_of_rank(visible, 2, all, gpus), std::nullopt) << visible;
  EXPECT_EQ(gpu_of_rank("0", 2, {}, gpus), std::nullopt) << "GPUs that it may not open";
}

TEST(RankPlace, ReadsTheMemorysNodes) {
  EXPECT_EQ(memory_nodes("Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0-1,4\n"), 0b10011U);
  EXPECT_EQ(memory_nodes("Mems_allowed_list:\tno\n"), 0U);
  EXPECT_EQ(memory_nodes(""), 0U);
}

TEST(RankPlace, OfThisProcessIsAmongThoseOfTheMachine) {
  const auto numa = read_numa();
  if (numa.empty()) GTEST_SKIP() << "this kernel tells no NUMA nodes";
  EXPECT_NE(own_numa_nodes(numa), 0U);
}

TEST(NumberedGpus, ListsAreNumbersOrNothing) {
  EXPECT_EQ(parse_gpu_list("0,2-3"), (std::vector<std::uint32_t>{0, 2, 3}));
  for (const std::string_view list : {"", "a", "3-1", "0-1023", "0-99999999999", "1,,2", "-"})
    EXPECT_TRUE(parse_gpu_list(list).empty()) << list;
}

}  // namespace
}  // namespace amldist::fabric::bind_test
