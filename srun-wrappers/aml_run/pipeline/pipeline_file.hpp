// From a pipeline file of Azure ML to the jobs of a run: components and inline jobs, inputs and outputs bound from job
// to job, pipelines in pipelines written out.
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
  std::string folder;  ///< from which relative paths are meant that are left
  YamlValue job;       ///< as a command job, or as a sweep
};

struct Pipeline {
  std::string display_name;
  std::string description;
  bool continue_on_failure = true;      ///< settings.continue_on_step_failure, and its default on Azure ML
  std::vector<PipelineJob> jobs;        ///< each behind those that it needs
  std::vector<std::string> made_later;  ///< paths of all outputs
  std::vector<Ignored> ignored;
};

/// Reads the jobs. `run_folder`: outputs without a path of their own come below it, as JOB/OUTPUT. Errors: what is
/// wrong and where; another type of job, by name, with what to do; jobs that need each other in a circle.
[[nodiscard]] Result<Pipeline> read_pipeline(const std::string& file, const YamlValue& root,
                                             const std::string& run_folder);

}  // namespace amldist::run
