// Asks NVIDIA's driver about the GPUs, through libnvidia-ml, which is opened at run time.
#pragma once

#include <chrono>
#include <string>

#include "fabric/gpu_state.hpp"

namespace amldist::fabric {

/// In a process of its own, which is killed after `timeout`: a driver with a sick GPU may hang. `library`: empty for
/// libnvidia-ml.so.1. Without the library nothing was asked.
[[nodiscard]] GpuStates read_gpu_states(const std::string& library, std::chrono::milliseconds timeout);

/// The wire format between that process and this one; errors: invalid_argument.
[[nodiscard]] std::string to_text(const GpuStates& states);
[[nodiscard]] Result<GpuStates> gpu_states_from_text(std::string_view text);

}  // namespace amldist::fabric
