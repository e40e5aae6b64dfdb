// The number of GPUs that a task can see, from each vendor's variables, counted as the vendors' runtimes do.
//
//   CUDA_VISIBLE_DEVICES=0,2                          2
//   CUDA_VISIBLE_DEVICES=MIG-a,MIG-b                  1: a process uses one MIG instance, the first
//   CUDA_VISIBLE_DEVICES=0,1,x,2                      2: the list ends at the first entry that is no device
//   CUDA_VISIBLE_DEVICES=0,0                          0: CUDA takes no list that names a device twice
//   ROCR_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=1    1: HIP's numbers (or CUDA's) are within ROCR's list
//   SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=0,1,2,3    1: exported over what Slurm bound
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text/environment.hpp"

namespace amldist::launch {

/// From CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK, SLURM_STEP_GPUS; nullopt if
/// none of them is set.
[[nodiscard]] std::optional<std::uint32_t> visible_gpus(const EnvironmentReader& environment);

/// Why a task sees fewer GPUs than its variables list, and what to do; nullopt if it sees all.
[[nodiscard]] std::optional<std::string> unseen_gpus(const EnvironmentReader& environment);

}  // namespace amldist::launch
