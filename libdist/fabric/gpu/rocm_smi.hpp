// Asks AMD's driver about the GPUs, through librocm_smi64, which is opened at run time.
#pragma once

#include <string>

#include "fabric/facts/gpu_state.hpp"

namespace amldist::fabric {

/// As ask_nvml(); `library`: empty for librocm_smi64.so of any version.
[[nodiscard]] GpuStates ask_rocm_smi(const std::string& library);

}  // namespace amldist::fabric
