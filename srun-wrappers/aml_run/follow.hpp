// `aml-run --wait`: a job from the queue to its end.
#pragma once

#include <string>

#include "aml_run/slurm_job.hpp"
#include "core/result.hpp"

namespace amldist::run {

/// How a followed job ended.
struct Followed {
  JobState state;
  std::string first_failure;  ///< "rank 2 (local 0) on node3: ...", as srun said it; empty: it said nothing
  double seconds = 0;         ///< since it was submitted
  bool detached = false;      ///< the user let it go on alone
};

/// The exit status that a followed job hands through: that of the task that failed first, if srun named one (what Slurm
/// killed after it would hide it), else the job's.
[[nodiscard]] int exit_status_of(const Followed& followed);

/// Says state and queue reason as they change, and copies the job's output as it comes: to standard output, or to
/// standard error if `output_on_stderr`. Ctrl-C asks on a terminal whether to cancel; without one, and for SIGTERM, it
/// cancels. Errors: the job is unknown.
[[nodiscard]] Result<Followed> follow(const std::string& id, bool output_on_stderr);

}  // namespace amldist::run
