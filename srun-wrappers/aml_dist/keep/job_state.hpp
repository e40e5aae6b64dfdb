// What `aml-dist keep` remembers of a job while it waits in the queue again: a file in the job's folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aml_dist/keep/keep_policy.hpp"
#include "base/text/result.hpp"

namespace amldist::keep {

/// A run of a job: a job that is requeued keeps its number and counts its restarts.
struct JobRun {
  std::string cluster;
  std::uint32_t job = 0;
  std::uint32_t restarts = 0;  ///< SLURM_RESTART_COUNT
};

struct JobState {
  std::vector<Start> history = {};
  std::vector<std::string> excluded = {};
  std::string batch_host = {};  ///< of the run that wrote it
  bool runs = false;            ///< a start was under way
};

/// ".aml-dist-keep-12.json" in the working folder.
[[nodiscard]] std::string state_file_of(const JobRun& run);

/// What an earlier run of this job has left. Errors: not_found, there is nothing, or only what this run or another job
/// wrote; unavailable, the file is another user's or cannot be read; invalid_argument, it is not such a file.
[[nodiscard]] Result<JobState> read_state(const std::string& path, const JobRun& run);

/// Replaces the file: whole or not at all, readable for its owner. Errors: unavailable.
[[nodiscard]] Result<void> write_state(const std::string& path, const JobRun& run, const JobState& state);

}  // namespace amldist::keep
