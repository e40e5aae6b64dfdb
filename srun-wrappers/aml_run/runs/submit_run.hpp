// Submits and ends a run's jobs through Slurm.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/slurm_job.hpp"

namespace amldist::run {

/// What to submit of a job.
struct Share {
  bool whole = true;                  ///< a job, or all trials
  std::vector<std::uint32_t> trials;  ///< else these
};

/// Submits the jobs whose names are in `wanted`, each with Slurm's dependencies on the wanted ones that it needs, and
/// records their numbers. If a later job is refused, those already submitted are cancelled.
[[nodiscard]] std::optional<Refusal> submit_run(Run& run, const std::map<std::string, Share>& wanted);

/// Ends all jobs of the run except `except`. Errors: unavailable.
[[nodiscard]] Result<void> cancel_run(const Run& run, std::string_view why, std::string_view except = {});

/// Whether a job of the run in `folder` may start: returns exit_done, or prints why not. Called by the job's script.
[[nodiscard]] int may_start(const std::string& folder);

/// Ends the other jobs of the run, because `job` failed. Called by the job's script; returns the exit status.
[[nodiscard]] int stop_run(const std::string& folder, const std::string& job);

}  // namespace amldist::run
