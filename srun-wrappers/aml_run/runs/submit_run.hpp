// A run's jobs in Slurm's hands.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aml_run/plan.hpp"
#include "aml_run/runs/run.hpp"
#include "aml_run/slurm_job.hpp"

namespace amldist::run {

/// Gives a job's plan what it needs in a run: its log and its record, a look at whether the run was stopped, and the
/// end of the others if it fails and the run does not continue on failure.
void place_in_run(const Run& run, const std::string& job_name, Plan& plan);

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

/// Answers what the scripts of a run's jobs ask, as `aml-run --stop-run FOLDER JOB` and `--may-start FOLDER`; returns
/// the exit status. nullopt: something else was asked.
[[nodiscard]] std::optional<int> run_verb(const std::vector<std::string>& words);

}  // namespace amldist::run
