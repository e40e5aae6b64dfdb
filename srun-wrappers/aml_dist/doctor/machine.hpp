// Looks at this machine for the doctor: files and limits only. No process is started, no framework is imported.
#pragma once

#include "aml_dist/doctor/task_context.hpp"

namespace amldist::doctor {

/// `environment` says where Python and the build tools would be found. What cannot be read stays unknown.
[[nodiscard]] Machine look_at_machine(const EnvironmentReader& environment);

/// The same for packages of Python and build tools only, for a task that is not this process.
[[nodiscard]] Machine look_at_python(const EnvironmentReader& environment);

}  // namespace amldist::doctor
