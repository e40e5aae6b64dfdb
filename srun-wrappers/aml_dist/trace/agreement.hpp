// What other witnesses of a hang say beside our verdict: PyTorch's flight recorder and NCCL's RAS. Pure.
#pragma once

#include <string>

#include "aml_dist/trace/nccl_ras.hpp"
#include "aml_dist/trace/trace_step.hpp"

namespace amldist::tools {

/// `dumps`: what read_torch_dumps() has read of the same step's ranks.
[[nodiscard]] Agreement compare_dumps(const TracedStep& ours, const TracedStep& dumps);

[[nodiscard]] Agreement compare_ras(const TracedStep& ours, const RasAnswer& answer);

}  // namespace amldist::tools
