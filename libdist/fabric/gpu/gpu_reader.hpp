// Asks a driver about the node's GPUs, in a process of its own.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "fabric/facts/gpu_state.hpp"

namespace amldist::fabric {

enum class GpuVendor { nvidia, amd };

/// In a process of its own, which is killed after `timeout`: a driver with a sick GPU may hang. `library`: empty for
/// the vendor's own. Without the library the GPUs are not asked.
[[nodiscard]] GpuStates read_gpu_states(GpuVendor vendor, const std::string& library,
                                        std::chrono::milliseconds timeout);

/// The wire format between that process and this one; errors: invalid_argument.
[[nodiscard]] std::string to_text(const GpuStates& states);
[[nodiscard]] Result<GpuStates> gpu_states_from_text(std::string_view text);

}  // namespace amldist::fabric
