// The name and the rank under which the calls of a world are recorded.
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
  std::vector<std::uint32_t> step_ranks = {};  ///< of the world's ranks, in the step; empty if they are the same
};

/// A name shared by the processes of one world. It reveals nothing about the nonce, which in an open world is all that
/// strangers do not know.
[[nodiscard]] std::string world_name(std::uint64_t nonce);

/// "42.0" under Slurm: the name that the plugin gives a traced step, the same for all components of a heterogeneous
/// one. nullopt if this is not a step.
[[nodiscard]] std::optional<std::string> step_name(const EnvironmentReader& environment);

/// The place of this process in its step, whatever its rank in the caller's world: "42.0 3/8". Empty if it is in no
/// step.
[[nodiscard]] std::string rank_in_step(const EnvironmentReader& environment);

/// The step's place if all processes of the world are members of one step, by their ranks_in_step; `own`: as the world
/// sees this process. nullopt if they are in several steps or outside of a step, or if several of them, started by one
/// task, share its rank.
[[nodiscard]] std::optional<RecordPlace> shared_place(const std::vector<std::string>& ranks_in_step,
                                                      const trace::RecorderOwner& own,
                                                      const EnvironmentReader& environment);

}  // namespace amldist::collective
