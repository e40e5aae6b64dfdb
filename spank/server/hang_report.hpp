// After a hang: the report file that srun writes, and its own exit status.
#pragma once

#include <string>

namespace amldist::spank {

/// Exit status of commands that ended a step for a hang.
inline constexpr int exit_hang = 75;

/// Writes a new file `aml-dist-hang-JOBID.STEP.txt` into srun's folder, or into /tmp where that cannot be written;
/// Writes a new file `aml-dist-hang-JOBID.STEP.txt` into srun's folder, or into /tmp if that cannot be written; if the
/// name is taken, `aml-dist-hang-JOBID.STEP-2.txt` and so on. Returns the path; empty if neither folder can be written.
[[nodiscard]] std::string write_hang_report(const std::string& step, const std::string& report);

/// From now on this srun exits with `status`, however its tasks end.
void end_srun_with(int status) noexcept;

}  // namespace amldist::spank
