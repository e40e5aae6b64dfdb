// Advice about steps that may start but will probably not do what the user expects. Rank 0 prints each line once per
// step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text/environment.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/identity.hpp"

namespace amldist::launch {

/// Warns if a node's tasks, the GPUs that a task sees, and LOCAL_RANK do not fit. `environment` is rank 0's.
[[nodiscard]] std::optional<std::string> gpu_advice(const Spec& spec, const Identity& identity,
                                                    const EnvironmentReader& environment);
/// The same for `tasks` on a node, of which each sees `gpus`.
[[nodiscard]] std::optional<std::string> gpu_advice(const Spec& spec, std::uint32_t tasks, std::uint32_t gpus);

/// Warns about an mpi step without PMIx or PMI: every process would run alone or fail in MPI_Init.
[[nodiscard]] std::optional<std::string> mpi_advice(const Spec& spec, const Identity& identity,
                                                    const EnvironmentReader& environment);

}  // namespace amldist::launch
