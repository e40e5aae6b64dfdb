// What srun leaves behind when its step hung: a file, and its own exit status.
#pragma once

#include <string>

namespace amldist::spank {

/// Of commands that ended a step for a hang.
inline constexpr int exit_hang = 75;

/// Writes a new file `aml-dist-hang-JOBID.STEP.txt` into srun's folder, or into /tmp where that cannot be written;
/// where the name is taken, `aml-dist-hang-JOBID.STEP-2.txt` and so on. The path; empty where neither can be written.
[[nodiscard]] std::string write_hang_report(const std::string& step, const std::string& report);

/// From now on this srun exits with `status`, however its tasks end.
void end_srun_with(int status) noexcept;

}  // namespace amldist::spank
