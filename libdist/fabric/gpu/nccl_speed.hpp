// The bus bandwidth of NCCL's allreduce between the GPUs of one node, computed as nccl-tests does: what NVLink, or its
// replacement, really carries.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

struct NcclSpeed {
  std::string problem;  ///< why nothing was measured; empty if it was
  bool failed = false;  ///< the measurement was possible but failed
  std::uint32_t gpus = 0;
  double gigabytes = 0;  ///< per second
};

/// In a process of its own, which is killed after `timeout`. `cuda` and `nccl`: empty for the usual libraries.
[[nodiscard]] NcclSpeed measure_nccl(const std::string& cuda, const std::string& nccl,
                                     std::chrono::milliseconds timeout);

/// gpu.nccl: against the SKU's floor in GB/s, if there is one.
[[nodiscard]] Check judge_nccl(const NcclSpeed& speed, std::optional<std::uint32_t> least);

}  // namespace amldist::fabric
