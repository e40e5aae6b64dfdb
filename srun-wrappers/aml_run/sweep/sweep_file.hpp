// A sweep job of Azure ML: a trial, its search space, the objective and the limits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aml_run/job_schema.hpp"
#include "aml_run/sweep/early_termination.hpp"
#include "aml_run/sweep/sampling.hpp"
#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

struct Sweep {
  YamlValue job;  ///< the trial as a command job; ${{search_space.x}} is left in it
  std::vector<Parameter> space;
  std::vector<Trial> trials;
  bool maximize = false;
  std::string metric;
  TerminationPolicy policy;
  std::uint32_t concurrent = 0;                ///< 0: all at a time
  std::uint64_t timeout_seconds = 0;           ///< of the whole sweep; 0: unlimited
  std::map<std::string, std::string> outputs;  ///< name: path, where the best trial's output must appear
};

/// Reads the sweep; local paths are relative to `folder`. Errors: what is wrong and where; sampling that is not
/// supported (bayesian), by name.
[[nodiscard]] Result<Sweep> read_sweep(const std::string& file, const std::string& folder, const YamlValue& root);

}  // namespace amldist::run
