// From an Azure ML job file to a plan.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aml_run/expressions.hpp"
#include "aml_run/plan.hpp"
#include "aml_run/site_table.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// Additions of the command line to a job file.
struct JobFileOptions {
  std::string option;                        ///< --kind: replaces `distribution`; empty: does not
  commands::SlurmOptions job;                ///< win over the file's
  bool literal = false;                      ///< --literal: values become one word each
  std::vector<std::string> made_later = {};  ///< paths that other jobs make, with everything below them
  std::vector<std::pair<std::string, Replacement>> further = {};  ///< values of other expressions: search_space.x
  const YamlValue* root = nullptr;  ///< the file that the job is a part of, for the keys that messages name
};

/// Translates a job that has been read; `file` is named in messages, and paths are relative to `folder`.
[[nodiscard]] Result<Plan> plan_job(const std::string& file, const std::string& folder, const YamlValue& job,
                                    const JobFileOptions& options, const SiteTable& table);

/// The absolute folder that contains a file.
[[nodiscard]] std::string folder_of(const std::string& file);

/// Reads a job file. Errors: what is wrong and where.
[[nodiscard]] Result<YamlValue> read_job_file(const std::string& file);

}  // namespace amldist::run
