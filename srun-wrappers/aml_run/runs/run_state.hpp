// The progress of a run's jobs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// One job, or one trial of an array.
struct WorkState {
  std::string state;   ///< Slurm's word; WAITING: not submitted yet; STOPPED: never will be; UNKNOWN; TERMINATED: a
                       ///< trial, by the sweep's policy
  std::string reason;  ///< why it waits
  std::string nodes;
  std::string job_id;   ///< "17" or "17_3"; empty: not submitted
  int exit_status = 0;  ///< of one that ended

  [[nodiscard]] bool ended() const;
  [[nodiscard]] bool good() const { return state == "COMPLETED"; }
};

struct RunJobState {
  WorkState whole;                ///< of an array: its trials taken together
  std::vector<WorkState> trials;  ///< of an array, by number - 1
};

struct RunState {
  std::vector<RunJobState> jobs;  ///< as in Run::jobs

  [[nodiscard]] bool ended() const;
  /// Every job ended well, and of every sweep at least one trial.
  [[nodiscard]] bool good() const;
};

/// Asks Slurm about all jobs in one request, and the run's records about those that it has forgotten. Errors:
/// unavailable, Slurm does not answer.
[[nodiscard]] Result<RunState> ask_run(const Run& run);

/// The run's exit status: 0, or that of the first job that failed.
[[nodiscard]] int exit_status_of(const Run& run, const RunState& state);

}  // namespace amldist::run
