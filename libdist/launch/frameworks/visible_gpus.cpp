#include "launch/frameworks/visible_gpus.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::launch {

std::optional<std::uint32_t> visible_gpus(const EnvironmentReader& environment) {
  constexpr std::array<std::string_view, 5> names = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                     "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_STEP_GPUS"};
  for (const std::string_view name : names) {
    const auto list = environment(name);
    if (!list) continue;
    // CUDA stops at the first invalid entry: "-1", "NoDevFiles", "".
    std::uint32_t count = 0;
    for (const std::string_view entry : text::split(*list, ',')) {
      const std::string_view device = text::trim(entry);
      if (device.empty() || device.front() == '-' || device == "NoDevFiles") break;
      ++count;
    }
    return count;
  }
  return std::nullopt;
}

}  // namespace amldist::launch
