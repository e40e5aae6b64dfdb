// The file that srun leaves behind when its step hung.
#pragma once

#include <string>

namespace amldist::spank {

/// Exit status of commands that ended a step for a hang.
inline constexpr int exit_hang = 75;

/// Writes a new file `FOLDERaml-dist-hang-JOBID.STEP.txt`; if the name is taken, `aml-dist-hang-JOBID.STEP-2.txt` and
/// so on. `folder`: empty for the working folder, else with a slash at its end. Returns the path; empty if it cannot be
/// written.
[[nodiscard]] std::string write_hang_report(const std::string& folder, const std::string& step,
                                            const std::string& report);

}  // namespace amldist::spank
