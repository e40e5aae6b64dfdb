// Files that become several jobs: pipelines and sweeps; and components, which become one.
#pragma once

#include "aml_run/command/command_line.hpp"
#include "aml_run/components/component.hpp"
#include "aml_run/site_table.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The job file with --set applied. Of a component, --set inputs.x and outputs.y are no part of it, but what its job
/// gives: see command_job_of().
[[nodiscard]] Result<YamlValue> read_file_with_sets(const CommandLine& line);

/// The command job that a file is: itself, or the component that it is or names, with the inputs of --set.
[[nodiscard]] Result<YamlValue> command_job_of(const CommandLine& line, const YamlValue& tree,
                                               const std::string& folder);

/// Why a file of another type is not run.
[[nodiscard]] Error refused_type(const CommandLine& line, const YamlValue& tree);

/// Prints, submits or follows a pipeline or a sweep; returns the exit status.
[[nodiscard]] int answer_run_file(const CommandLine& line, const YamlValue& tree, FileKind kind,
                                  const SiteTable& table);

}  // namespace amldist::run
