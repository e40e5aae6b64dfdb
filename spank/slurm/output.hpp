// Everything that the plugin prints: each line begins with "aml-dist: ".
#pragma once

#include <string_view>

namespace amldist::spank {

/// To the user's terminal, from srun, sbatch or salloc (standard error).
void tell_user(std::string_view sentence) noexcept;

/// To the step's standard error, from slurmstepd and its children.
void tell_step(std::string_view sentence) noexcept;

/// To the log of slurmd.
void log_for_administrator(std::string_view sentence) noexcept;

}  // namespace amldist::spank
