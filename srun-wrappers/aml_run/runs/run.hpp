// A run: several jobs that belong together (a pipeline, a sweep), kept in a folder of their own, so that they can be
// shown, cancelled and continued by name after aml-run has ended.
//
//   aml-runs/train-1/run.json        what it consists of, and the numbers of its jobs
//   aml-runs/train-1/jobs/prep.sh    the batch script of each job
//   aml-runs/train-1/logs/prep.out   what the job wrote
//   aml-runs/train-1/state/prep      how it ended (step/messages/job_record.hpp)
//   aml-runs/train-1/stopped         why nothing more is started
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

struct RunJob {
  std::string name;                ///< "prep", "train.best"
  std::vector<std::string> needs;  ///< names of jobs that must end well before this one starts
  bool after_any_end = false;      ///< `needs` may have failed too
  std::uint32_t trials = 0;        ///< of a sweep: an array with this many tasks, counted from 1; 0: not an array
  std::uint32_t concurrent = 0;    ///< most trials at a time; 0: no limit
  std::vector<std::string> ids;    ///< of its Slurm jobs, the latest last
  std::string script;              ///< kept in jobs/, not in run.json
};

struct Run {
  std::string name;
  std::string folder;  ///< absolute
  std::string kind;    ///< "pipeline" or "sweep"
  std::string source;  ///< the job file
  bool continue_on_failure = false;
  std::vector<RunJob> jobs;  ///< each after those that it needs

  [[nodiscard]] RunJob* find(std::string_view job_name);
  [[nodiscard]] const RunJob* find(std::string_view job_name) const;
};

/// Where the trials of an array are: the run's folder, or in a pipeline the job's.
[[nodiscard]] std::string sweep_folder_of(const Run& run, const RunJob& job);

/// Where runs are kept: aml-runs in the working folder. Absolute.
[[nodiscard]] std::string runs_folder();

/// The name of the next run called `wanted`: "train-3", if there are two. Letters, digits, - and _ of `wanted` stay.
[[nodiscard]] std::string next_run_name(std::string_view wanted);

/// Makes the folder of a new run, and returns its path. Errors: invalid_argument (it is there), unavailable.
[[nodiscard]] Result<std::string> make_run_folder(const std::string& name);
/// Makes the run's folder and writes the scripts and run.json. Errors: as above.
[[nodiscard]] Result<void> create_run(const Run& run);
/// Rewrites run.json. Errors: unavailable.
[[nodiscard]] Result<void> save_run(const Run& run);
/// A run by its name, its folder, or the number of one of its jobs. Errors: not_found, invalid_argument (not a run).
[[nodiscard]] Result<Run> open_run(std::string_view id);
/// All runs, ordered by name. Errors: unavailable, others can change them.
[[nodiscard]] Result<std::vector<Run>> all_runs();

/// Records that nothing more of the run is to start. A second reason changes nothing.
void mark_stopped(const Run& run, std::string_view why);
void clear_stopped(const Run& run);
/// Why the run was stopped; empty if it was not.
[[nodiscard]] std::string why_stopped(const Run& run);

}  // namespace amldist::run
