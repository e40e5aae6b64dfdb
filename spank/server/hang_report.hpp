// The file that srun leaves behind when its step hung.
#pragma once

#include <string>

namespace amldist::spank {

/// Exit status of commands that ended a step for a hang.
inline constexpr int exit_hang = 75;

/// Writes a new file `aml-dist-hang-JOBID.STEP.txt` into srun's folder, or into /tmp where that cannot be written;
/// Writes a new file `aml-dist-hang-JOBID.STEP.txt` into srun's folder, or into /tmp if that cannot be written; if the
/// name is taken, `aml-dist-hang-JOBID.STEP-2.txt` and so on. Returns the path; empty if neither folder can be written.
[[nodiscard]] std::string write_hang_report(const std::string& step, const std::string& report);

}  // namespace amldist::spank
