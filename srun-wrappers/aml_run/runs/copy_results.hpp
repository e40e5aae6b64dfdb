// --download: copies the logs and outputs of a run or a job to a folder of the user.
#pragma once

#include <string>
#include <string_view>

#include "aml_run/runs/run.hpp"
#include "aml_run/slurm_job.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// Copies the logs, outputs and trials of a run to `path`/NAME, and returns that folder; `path` empty: the working
/// folder. Outputs with a path of their own stay where they are. Errors: already_exists as invalid_argument,
/// unavailable.
[[nodiscard]] Result<std::string> copy_run_results(const Run& run, const std::string& path);

/// Copies the output of a job, and outputs/ID of its folder, to `path`/ID.
[[nodiscard]] Result<std::string> copy_job_results(std::string_view id, const JobState& state, const std::string& path);

}  // namespace amldist::run
