// `aml-run --wait`: follows a job from the queue to its end. Slurm and the record that its script and srun write
// (step/messages/job_record.hpp) say how it ended; the job's output is copied and never interpreted.
#pragma once

#include <optional>
#include <string>

#include "aml_run/slurm_job.hpp"
#include "base/text/result.hpp"
#include "step/messages/job_record.hpp"

namespace amldist::run {

/// How a followed job ended.
struct Followed {
  JobState state;
  std::optional<step::JobRecord::FailedTask> first_failure;  ///< as srun recorded it
  double seconds = 0;                                        ///< since it was submitted
  bool detached = false;                                     ///< the user stopped following; the job goes on
};

/// The exit status of a followed job: that of the task that failed first, if srun recorded one (the tasks that Slurm
/// killed after it would hide it), else the job's.
[[nodiscard]] int exit_status_of(const Followed& followed);

/// Prints state and queue reason as they change, and copies the job's output as it arrives: to standard output, or to
/// standard error if `output_on_stderr`. On a terminal Ctrl-C asks whether to cancel; without a terminal, and for
/// SIGTERM, it cancels. `record` is the path of the job's record, which is removed at the end; it says how a job ended
/// that Slurm has forgotten. Errors: not_found, Slurm does not know the job.
[[nodiscard]] Result<Followed> follow(const std::string& id, const std::string& record, bool output_on_stderr);

}  // namespace amldist::run
