// Makes a plan from the request.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aml_run/command/command_line.hpp"
#include "aml_run/job_file.hpp"
#include "aml_run/plan.hpp"
#include "aml_run/site_table.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The administrator's table that the command line names, or the default one.
[[nodiscard]] Result<SiteTable> read_table(const CommandLine& line);

/// A command behind "--".
[[nodiscard]] Plan plan_command(const CommandLine& line);

/// A job of a file, with what the command line adds.
struct PlannedTree {
  std::string file;    ///< named in messages
  std::string folder;  ///< to which paths are relative
  YamlValue job;
  std::vector<std::string> made_later = {};
  std::vector<std::pair<std::string, Replacement>> further = {};
  const YamlValue* root = nullptr;  ///< the file that the job is a part of
};
[[nodiscard]] Result<Plan> plan_tree(const CommandLine& line, const SiteTable& table, const PlannedTree& tree);

/// Copies the plan's code folder to `to`, where the job then works; does nothing without a code folder.
void use_snapshot(const std::string& to, Plan& plan);

/// The common part of job files and commands: srun's options, the shape, the log. `as_step`: inside an allocation.
[[nodiscard]] Result<Plan> finish_plan(const CommandLine& line, Plan plan, bool as_step);

}  // namespace amldist::run
