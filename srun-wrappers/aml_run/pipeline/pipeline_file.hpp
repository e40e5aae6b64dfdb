// From a pipeline file of Azure ML to the jobs of a run: components and inline jobs, inputs and outputs bound from job
// to job, nested pipelines flattened.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aml_run/components/component.hpp"
#include "aml_run/plan.hpp"
#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// A job of the pipeline. Paths in it are absolute.
struct PipelineJob {
  std::string name;             ///< "train"; of an inner pipeline: "inner.train"
  std::set<std::string> needs;  ///< names of other jobs
  bool is_sweep = false;
  std::string folder;  ///< to which the remaining relative paths are relative
  YamlValue job;       ///< as a command job, or as a sweep
};

struct Pipeline {
  std::string display_name;
  std::string description;
  bool continue_on_failure = true;      ///< settings.continue_on_step_failure; the default is that of Azure ML
  std::vector<PipelineJob> jobs;        ///< each after those that it needs
  std::vector<std::string> made_later;  ///< paths of all outputs
  std::vector<Ignored> ignored;
};

/// Reads the jobs. `run_folder`: outputs without a path of their own are placed below it, as JOB/OUTPUT. Errors: what
/// is wrong and where; an unsupported type of job, with what to do; jobs that depend on each other in a cycle.
[[nodiscard]] Result<Pipeline> read_pipeline(const std::string& file, const YamlValue& root,
                                             const std::string& run_folder);

}  // namespace amldist::run
