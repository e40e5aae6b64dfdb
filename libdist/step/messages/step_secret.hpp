// The step's secret: 32 bytes of the kernel's generator, by which the step's processes recognise each other. srun makes
// it, and nothing but the environment carries it: to the nodes as SLURM_AMLDIST_SECRET (only such names pass
// --export=NONE), to the tasks as AMLDIST_STEP_SECRET. No message, argument or file contains it.
#pragma once

#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::step {

inline constexpr const char* secret_variable = "SLURM_AMLDIST_SECRET";

/// In srun, sbatch and salloc: removes what an outer step left, so that no other step has its secret.
void forget_outer_secret() noexcept;
/// In srun: makes the secret and puts it into the environment. Before the step exists, so that it reaches every
/// component of a heterogeneous one. Errors: unavailable, internal.
[[nodiscard]] Result<void> send_secret();
/// In slurmstepd: the secret as srun sent it; empty where it sent none, or where this is none.
[[nodiscard]] std::string read_secret(const EnvironmentReader& environment);
/// Gives a task the secret, in place of any other.
void give_secret(const std::string& secret, const EnvironmentReader& inherited, EnvironmentPatch& patch);

}  // namespace amldist::step
