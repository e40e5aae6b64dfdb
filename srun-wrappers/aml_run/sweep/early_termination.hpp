// When a trial of a sweep is ended early, as Azure ML's policies do it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

struct TerminationPolicy {
  enum class Kind { none, bandit, median_stopping, truncation_selection };
  Kind kind = Kind::none;
  std::size_t interval = 1;  ///< a trial is judged at every interval-th report of the metric
  std::size_t delay = 0;     ///< the first report at which it is judged
  double slack_factor = 0;
  double slack_amount = 0;
  double percentage = 0;  ///< of truncation_selection
  bool exclude_finished = false;
};

/// Reads `early_termination`. Errors: what is wrong and where.
[[nodiscard]] Result<TerminationPolicy> read_termination(std::string_view file, const YamlValue& value);

/// The values that a trial has reported, in order.
struct Series {
  std::vector<double> values;
  bool finished = false;
};

/// Why the trial `own` must end, as a sentence; empty if it goes on. `others` are the other trials. It is judged at the
/// last report that the interval and the delay permit, against the others at the same report.
[[nodiscard]] std::string why_terminated(const TerminationPolicy& policy, bool maximize, const Series& own,
                                         const std::vector<Series>& others);

/// The best of a series' first `count` values; the series must not be empty.
[[nodiscard]] double best_of(const std::vector<double>& values, std::size_t count, bool maximize);

}  // namespace amldist::run
