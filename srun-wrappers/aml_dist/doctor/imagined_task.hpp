// The environment of an imagined task: what srun sets, and on top of it what aml-dist would set.
#pragma once

#include <string>

#include "aml_dist/common/explanation.hpp"
#include "base/text/result.hpp"

namespace amldist::doctor {

/// The environment of the task with this rank. `mpi` is srun's --mpi: "pmix" or "none"; empty: pmix for mpi steps.
/// Errors: invalid_argument for a rank that the step does not have, else as of Explanation::task().
[[nodiscard]] Result<EnvironmentReader> imagined_task(const tools::Explanation& step, std::uint32_t rank,
                                                      std::string mpi, std::uint32_t job);

}  // namespace amldist::doctor
