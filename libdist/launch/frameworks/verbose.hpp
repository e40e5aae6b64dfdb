// What `verbose` prints about a step, from srun or, if no srun lives (--async), from rank 0's node.
#pragma once

#include <string>
#include <string_view>

#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"

namespace amldist::launch {

/// "pytorch per process: 4 tasks on 2 nodes, map (vector,...) (exact: ...), rank 0 on n1, address 10.0.0.1"
[[nodiscard]] std::string placement_line(const Spec& spec, const Placement& placement, std::string_view address);

}  // namespace amldist::launch
