// Things that are not wrong enough to refuse but will surprise: one line each, told once per step by rank 0.
#pragma once

#include <optional>
#include <string>

#include "core/environment.hpp"
#include "core/spec.hpp"
#include "placement/identity.hpp"

namespace amldist {

/// Tasks of a node, GPUs that a task sees and LOCAL_RANK do not fit together. `environment` is rank 0's.
[[nodiscard]] std::optional<std::string> gpu_advice(const Spec& spec, const Identity& identity,
                                                    const EnvironmentReader& environment);

/// An mpi step without PMIx or PMI: its processes would each be alone, or end in MPI_Init.
[[nodiscard]] std::optional<std::string> mpi_advice(const Spec& spec, const Identity& identity,
                                                    const EnvironmentReader& environment);

}  // namespace amldist
