// All the doctor's rows for one task.
#pragma once

#include <string>
#include <vector>

#include "aml_dist/doctor/framework_result.hpp"
#include "aml_dist/doctor/task_context.hpp"
#include "base/text/result.hpp"

namespace amldist::doctor {

/// The rows to examine: empty means all, and those that do not belong to the step are skipped with the reason. A row
/// that is asked for by name is always examined.
struct Selection {
  std::string framework = {};
  std::string launcher = {};
  std::vector<std::string> command = {};  ///< the step's program; empty: not known
};

/// One row for each framework and launcher. Errors: invalid_argument for a name that no row has.
[[nodiscard]] Result<std::vector<FrameworkResult>> examine(const TaskContext& here, const Selection& selection);

}  // namespace amldist::doctor
