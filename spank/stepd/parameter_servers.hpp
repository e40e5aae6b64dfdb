// Steps with TensorFlow's parameter servers: programs that never return, and have to be ended.
#pragma once

#include <cstdint>

#include "launch/frameworks/tensorflow_roles.hpp"
#include "launch/option/spec.hpp"

namespace amldist::spank {

/// Whether a step of so many tasks has servers, and somebody else whose end is the end of its work.
[[nodiscard]] bool has_servers(const launch::Spec& spec, std::uint32_t tasks);

/// The rank whose node takes srun's place where no srun waits: rank 0; or the first parameter server, which is there
/// until all of them may end.
[[nodiscard]] std::uint32_t rank_of_stand_in(const launch::Spec& spec, std::uint32_t tasks);

/// Whether somebody else has to end this task: a server; and beside a chief a worker, which in TensorFlow 2 serves it
/// and never returns.
[[nodiscard]] bool needs_task_monitor(const launch::Spec& spec, std::uint32_t tasks, std::uint32_t rank);

}  // namespace amldist::spank
