// The output of explain: JSON for programs, export lines for shells, a table for people.
#pragma once

#include <span>
#include <string>

#include "aml_dist/common/explanation.hpp"

namespace amldist::tools {

/// An array with rank, local_rank, node_rank, host and env of each task.
[[nodiscard]] std::string to_json(std::span<const ExplainedTask> tasks);

/// `export NAME='value'` and `unset NAME`, one line each, as a POSIX shell reads them.
[[nodiscard]] std::string to_exports(const ExplainedTask& task);

/// Kind, shape, task map and rendezvous, in two lines.
[[nodiscard]] std::string describe_step(const launch::StepPlan& plan);

/// One row for each task.
[[nodiscard]] std::string to_table(std::span<const ExplainedTask> tasks);

}  // namespace amldist::tools
