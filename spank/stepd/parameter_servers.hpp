// Steps with TensorFlow's parameter servers: programs that never return, and have to be ended.
#pragma once

#include <cstdint>

#include "launch/frameworks/task_environment.hpp"
#include "launch/frameworks/tensorflow_roles.hpp"

namespace amldist::spank {

/// The roles of a tensorflow step's ranks.
[[nodiscard]] launch::TensorflowRoles roles_of(const launch::StepPlan& plan);

/// Whether the step has servers, and somebody else whose end is the end of its work.
[[nodiscard]] bool has_servers(const launch::StepPlan& plan);

/// The lowest rank that is a server. Only for a step that has one.
[[nodiscard]] std::uint32_t first_server(const launch::StepPlan& plan);

/// Whether somebody else has to end this task: a server; and beside a chief a worker, which in TensorFlow 2 serves it
/// and never returns.
[[nodiscard]] bool needs_task_monitor(const launch::StepPlan& plan, std::uint32_t rank);

}  // namespace amldist::spank
