// The step's secret: 32 bytes of the kernel's generator, by which the step's processes recognise each other. srun makes
// it. Only the environment carries it: to the nodes as SLURM_AMLDIST_SECRET (only such names pass --export=NONE), to
// the tasks as AMLDIST_STEP_SECRET. No message, argument or file contains it.
#pragma once

#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::step {

inline constexpr const char* secret_variable = "SLURM_AMLDIST_SECRET";

/// In srun, sbatch and salloc: removes the secret of an outer step, so that no other step inherits it.
void forget_outer_secret() noexcept;
/// In srun: makes the secret and puts it into the environment, before the step exists, so that it reaches every
/// component of a heterogeneous one. Errors: unavailable, internal.
[[nodiscard]] Result<void> send_secret();
/// In slurmstepd: the secret as srun sent it; empty if srun sent no valid secret.
[[nodiscard]] std::string read_secret(const EnvironmentReader& environment);
/// Gives a task the secret, replacing any other.
void give_secret(const std::string& secret, const EnvironmentReader& inherited, EnvironmentPatch& patch);

}  // namespace amldist::step
