// NVIDIA's GPUs by the numbers of their device files (/dev/nvidia3), by which Slurm names them in SLURM_STEP_GPUS.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::fabric {

struct NumberedGpu {
  std::uint32_t number = 0;
  std::string address;  ///< "0000:3b:00.0"
  std::string uuid;     ///< "GPU-8a5f..."; empty: not told

  friend bool operator==(const NumberedGpu&, const NumberedGpu&) = default;
};

/// From the driver's folder, by number; at most 64.
[[nodiscard]] std::vector<NumberedGpu> read_numbered_gpus(const std::string& folder = "/proc/driver/nvidia/gpus");

/// The numbers of "0,2-3"; empty for what is not such a list.
[[nodiscard]] std::vector<std::uint32_t> parse_gpu_list(std::string_view list);

/// The PCI addresses of the GPUs with these numbers, as far as there are any.
[[nodiscard]] std::vector<std::string> addresses_of(std::span<const NumberedGpu> gpus,
                                                    std::span<const std::uint32_t> numbers);

}  // namespace amldist::fabric
