// A run's jobs in Slurm's hands.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/slurm_job.hpp"

namespace amldist::run {

/// What is submitted of a job.
struct Share {
  bool whole = true;                  ///< a job, or all trials
  std::vector<std::uint32_t> trials;  ///< else these
};

/// Submits the jobs whose names are in `wanted`, each with Slurm's dependencies on the wanted ones that it needs, and
/// notes their numbers. What was submitted is cancelled if a later job is refused.
[[nodiscard]] std::optional<Refusal> submit_run(Run& run, const std::map<std::string, Share>& wanted);

/// Ends all jobs of the run but `except`. Errors: unavailable.
[[nodiscard]] Result<void> cancel_run(const Run& run, std::string_view why, std::string_view except = {});

/// Whether a job of the run in `folder` may start: exit_done, or says why not. Asked by the job's script.
[[nodiscard]] int may_start(const std::string& folder);

/// Ends the other jobs of the run, since `job` failed. Asked by the job's script; returns the exit status.
[[nodiscard]] int stop_run(const std::string& folder, const std::string& job);

}  // namespace amldist::run
