// The number of GPUs that a task can see, from each vendor's variable.
#pragma once

#include <cstdint>
#include <optional>

#include "base/text/environment.hpp"

namespace amldist::launch {

/// Counts the devices in the first variable that is set: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
/// HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK, SLURM_STEP_GPUS. A MIG or UUID entry counts as one. nullopt if none is set.
[[nodiscard]] std::optional<std::uint32_t> visible_gpus(const EnvironmentReader& environment);

}  // namespace amldist::launch
