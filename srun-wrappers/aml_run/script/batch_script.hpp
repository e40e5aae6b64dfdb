// A plan as a readable script.
#pragma once

#include <string>
#include <vector>

#include "aml_run/plan.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The script for sbatch: #SBATCH lines, the job's preparations, one srun. Errors: limit, if a task's command is longer
/// than Linux permits.
[[nodiscard]] Result<std::string> write_batch_script(const Plan& plan);

/// The same for a step of the present allocation: the shape is on the srun line. `dropped` gets the options that only a
/// job can have.
[[nodiscard]] Result<std::string> write_step_script(const Plan& plan, std::vector<std::string>& dropped);

}  // namespace amldist::run
