// From an Azure ML job file to a plan.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aml_run/plan.hpp"
#include "aml_run/site_table.hpp"
#include "core/result.hpp"

namespace amldist::run {

/// What the command line adds to a job file.
struct JobFileOptions {
  std::vector<std::pair<std::string, std::string>> set;  ///< --set PATH=VALUE, in order
  std::string option;          ///< --kind: replaces what `distribution` says; empty: it does not
  commands::SlurmOptions job;  ///< win over the file's
  bool literal = false;        ///< --literal: values become one word each
};

/// Reads, checks and translates a job file. Local paths in it are relative to its folder, and made absolute.
/// Errors: what is wrong and where; not_found for files and folders that the job names.
[[nodiscard]] Result<Plan> plan_job_file(const std::string& file, const JobFileOptions& options,
                                         const SiteTable& table);

}  // namespace amldist::run
