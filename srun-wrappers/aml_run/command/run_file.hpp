// Files that become several jobs: pipelines and sweeps; and components, which become one job.
#pragma once

#include "aml_run/command/command_line.hpp"
#include "aml_run/components/component.hpp"
#include "aml_run/site_table.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The job file with --set applied. For a component, --set inputs.x and outputs.y do not change it, but are passed by
/// its job: see command_job_of().
[[nodiscard]] Result<YamlValue> read_file_with_sets(const CommandLine& line);

/// The command job of a file: itself, or made from the component that it is or names, with the inputs of --set.
[[nodiscard]] Result<YamlValue> command_job_of(const CommandLine& line, const YamlValue& tree,
                                               const std::string& folder);

/// Why a file of another type cannot be run.
[[nodiscard]] Error refused_type(const CommandLine& line, const YamlValue& tree);

/// Prints, submits or follows a pipeline or a sweep; returns the exit status.
[[nodiscard]] int answer_run_file(const CommandLine& line, const YamlValue& tree, FileKind kind,
                                  const SiteTable& table);

}  // namespace amldist::run
