// The step that this program runs in, from the environment of its own task.
#pragma once

#include <optional>
#include <string>

#include "aml_dist/common/explanation.hpp"
#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::tools {

/// This task, and the whole step if its environment says enough to know every other task.
struct RunningStep {
  ExplainedTask own;
  std::optional<Explanation> whole;
  std::string reason;  ///< without `whole`: why it cannot be known
};

/// Reads the environment of a task that `srun --aml-dist` started. `option` replaces the kind and keys of the step;
/// empty: its own. Layout and master come from the stamp and from Slurm's variables of this node, and must agree;
/// nothing is guessed. Errors: unavailable outside such a step; invalid_argument for the option.
[[nodiscard]] Result<RunningStep> read_running_step(const EnvironmentReader& environment, const std::string& option);

}  // namespace amldist::tools
