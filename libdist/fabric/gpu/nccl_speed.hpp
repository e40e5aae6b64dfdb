// The bus bandwidth of NCCL's allreduce between the GPUs of one node, as nccl-tests counts it: what NVLink, or what
// stands in for it, really carries.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

struct NcclSpeed {
  std::string problem;  ///< why nothing was measured; empty: it was
  bool failed = false;  ///< there was something to measure, and it did not go well
  std::uint32_t gpus = 0;
  double gigabytes = 0;  ///< a second
};

/// In a process of its own, which is killed after `timeout`. `cuda` and `nccl`: empty for the usual libraries.
[[nodiscard]] NcclSpeed measure_nccl(const std::string& cuda, const std::string& nccl,
                                     std::chrono::milliseconds timeout);

/// gpu.nccl: against the SKU's floor in GB/s, if there is one.
[[nodiscard]] Check judge_nccl(const NcclSpeed& speed, std::optional<std::uint32_t> least);

}  // namespace amldist::fabric
