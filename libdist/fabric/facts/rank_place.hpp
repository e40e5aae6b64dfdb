// Where a rank runs: its processors, memory, GPU and port, by NUMA node.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/environment.hpp"
#include "fabric/facts/numbered_gpus.hpp"

namespace amldist::fabric {

/// A set of NUMA nodes, one bit each; those above 63 are left out. 0: not known.
using NumaNodes = std::uint64_t;

/// Plain memory, so that a task can leave it to its siblings (spank/stepd/task_facts.hpp).
struct RankPlace {
  std::uint32_t rank = 0;
  NumaNodes processors = 0;
  NumaNodes memory = 0;
  std::int32_t gpu = -1;           ///< its number on the node; -1: none, several, or not known
  std::array<char, 32> port = {};  ///< the one that the user chose for this rank: "mlx5_1"; empty: none
};

/// The node's devices by NUMA node.
struct DevicePlaces {
  std::vector<std::pair<std::uint32_t, int>> gpus = {};  ///< number and NUMA node; -1: not known
  std::vector<std::pair<std::string, int>> ports = {};   ///< RDMA devices
};

/// NUMA nodes of the machine with their processors: "0-15,32-47".
struct NumaProcessors {
  std::uint32_t node = 0;
  std::vector<bool> processors;
};
[[nodiscard]] std::vector<NumaProcessors> read_numa(const std::string& sys = "/sys");

[[nodiscard]] DevicePlaces read_device_places(std::span<const NumberedGpu> gpus, const std::string& sys = "/sys");

/// The NUMA nodes of the processors that this process may use.
[[nodiscard]] NumaNodes own_numa_nodes(std::span<const NumaProcessors> numa);
/// Those of its memory, from the text of /proc/self/status.
[[nodiscard]] NumaNodes memory_nodes(std::string_view status);

/// Which GPU a rank takes of those that CUDA_VISIBLE_DEVICES names: the only one, or that of its local rank.
/// `accessible`: numbers of the GPUs that its cgroup lets it open, among which the variable counts; empty: not known.
/// nullopt: it names no GPU, or too few.
[[nodiscard]] std::optional<std::uint32_t> gpu_of_rank(std::string_view visible, std::uint32_t local_rank,
                                                       std::span<const std::uint32_t> accessible,
                                                       std::span<const NumberedGpu> gpus);
/// Without opening a device. `dev`: /dev.
[[nodiscard]] std::vector<std::uint32_t> accessible_gpus(std::span<const NumberedGpu> gpus,
                                                         const std::string& dev = "/dev");

/// The place of this process. GPUs that are shared on purpose, by NVIDIA's MPS, are left out.
[[nodiscard]] RankPlace own_place(std::span<const NumaProcessors> numa, std::span<const NumberedGpu> gpus,
                                  std::uint32_t rank, std::uint32_t local_rank, const EnvironmentReader& environment);

}  // namespace amldist::fabric
