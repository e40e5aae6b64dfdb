// The metric of a trial, from the file that AML_METRICS_FILE names, from MLflow's file store, or from its log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

/// The values of `metric` in a metrics file: lines of JSON ({"loss": 0.5, "step": 3}, or {"name": "loss", "value":
/// 0.5}) or of the form "loss 0.5" or "loss=0.5". Other lines are skipped.
[[nodiscard]] std::vector<double> read_metrics_text(std::string_view text, std::string_view metric);

/// The same in a file of MLflow's file store: lines of time, value and step.
[[nodiscard]] std::vector<double> read_mlflow_text(std::string_view text);

/// The numbers that the first group of `pattern`, an extended regular expression, matches in the lines of a log.
/// Errors: invalid_argument, the pattern (the sentence says why).
[[nodiscard]] Result<std::vector<double>> read_log_text(std::string_view text, const std::string& pattern);

/// All values that a trial has reported so far, from the first of the three places that has any. `folder`: the trial's.
[[nodiscard]] std::vector<double> read_trial_metrics(const std::string& folder, const std::string& metric,
                                                     const std::string& pattern);

}  // namespace amldist::run
