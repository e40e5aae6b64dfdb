// A sweep in its run's folder: the data that its trials' scripts and its viewers need.
//
//   sweep.json             parameters, objective, policy
//   trials/7/output.txt    what trial 7 wrote
//   trials/7/metrics.jsonl, trials/7/mlruns    what it reported
//   trials/7/record        how it ended (step/messages/job_record.hpp)
//   trials/7/terminated    why it was ended early
//   trials/7/NAME          its output NAME
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/runs/run_state.hpp"
#include "aml_run/sweep/early_termination.hpp"
#include "aml_run/sweep/sampling.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

struct SweepRecord {
  std::vector<std::string> names;  ///< of the parameters
  std::vector<Trial> trials;
  std::string metric;
  bool maximize = false;
  std::string pattern;  ///< of the metric in the log; empty: the log is not searched
  TerminationPolicy policy;
  std::uint64_t timeout_seconds = 0;  ///< of the whole sweep, from its first trial's start; 0: unlimited
  std::map<std::string, std::string> outputs;
};

[[nodiscard]] std::string trial_folder(const std::string& sweep_folder, std::uint32_t number);

/// Makes the folders and writes sweep.json. Errors: unavailable.
[[nodiscard]] Result<void> write_sweep(const std::string& folder, const SweepRecord& record);
[[nodiscard]] Result<SweepRecord> read_sweep_record(const std::string& folder);

struct TrialResult {
  std::uint32_t number = 0;
  std::string state;  ///< Slurm's word; TERMINATED: by the policy
  std::string job_id;
  int exit_status = 0;
  std::optional<double> metric;  ///< the best that it reported
  std::size_t reports = 0;
  std::string why;  ///< why it was terminated
};

struct SweepResults {
  SweepRecord record;
  std::vector<TrialResult> trials;
  std::optional<std::size_t> best;  ///< index; among those that ended well or were terminated
};

[[nodiscard]] Result<SweepResults> read_results(const std::string& folder, const std::vector<WorkState>& states);

/// The index of the best of `trials`; nullopt if no trial that counts has a metric.
[[nodiscard]] std::optional<std::size_t> find_best(const std::vector<TrialResult>& trials, bool maximize);

}  // namespace amldist::run
