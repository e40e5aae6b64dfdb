// Asks NVIDIA's driver about the GPUs, through libnvidia-ml, which is opened at run time.
#pragma once

#include <string>

#include "fabric/facts/gpu_state.hpp"

namespace amldist::fabric {

/// `library`: empty for libnvidia-ml.so.1; without it the GPUs are not asked. Runs in this process: a driver with a
/// sick GPU may hang, see gpu_reader.hpp.
[[nodiscard]] GpuStates ask_nvml(const std::string& library);

}  // namespace amldist::fabric
