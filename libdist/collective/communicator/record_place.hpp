// Under which name, and as which rank, the calls of a world are recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/environment.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::collective {

struct RecordPlace {
  trace::RecorderOwner owner;                  ///< `job` names the folder
  std::vector<std::uint32_t> step_ranks = {};  ///< of the world's ranks, in the step; empty: they are the same
};

/// A name that the processes of one world share. It tells nothing about the nonce, which in an open world is all that
/// strangers do not know.
[[nodiscard]] std::string world_name(std::uint64_t nonce);

/// "42.0" under Slurm: as the plugin calls a traced step, where all components of a heterogeneous one have one name.
/// nullopt: this is no step.
[[nodiscard]] std::optional<std::string> step_name(const EnvironmentReader& environment);

/// Where this process sits in its step, whatever its rank in the caller's world: "42.0 3/8". Empty: nowhere.
[[nodiscard]] std::string rank_in_step(const EnvironmentReader& environment);

/// The place in the step of which all processes of a world are members, by their ranks_in_step; `own`: as the world
/// sees this process. nullopt: they are of several steps or of none, or several that one task has started share its
/// rank.
[[nodiscard]] std::optional<RecordPlace> shared_place(const std::vector<std::string>& ranks_in_step,
                                                      const trace::RecorderOwner& own,
                                                      const EnvironmentReader& environment);

}  // namespace amldist::collective
