// How many GPUs a task can see, by every vendor's variable.
#pragma once

#include <cstdint>
#include <optional>

#include "core/environment.hpp"

namespace amldist {

/// Devices in CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK or SLURM_STEP_GPUS, the
/// first of them that is set; MIG and UUID entries count one each. nullopt if none is set.
[[nodiscard]] std::optional<std::uint32_t> visible_gpus(const EnvironmentReader& environment);

}  // namespace amldist
