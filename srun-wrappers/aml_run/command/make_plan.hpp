// From what was asked to a plan.
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
  std::string folder;  ///< from which relative paths are meant
  YamlValue job;
  std::vector<std::string> made_later = {};
  std::vector<std::pair<std::string, Replacement>> further = {};
  const YamlValue* root = nullptr;  ///< the file that the job is a part of
};
[[nodiscard]] Result<Plan> plan_tree(const CommandLine& line, const SiteTable& table, const PlannedTree& tree);

/// Has the plan's code folder copied to `to`, and the job work there; without a code folder nothing changes.
void use_snapshot(const std::string& to, Plan& plan);

/// What job files and commands have in common: srun's options, the shape, the log. `as_step`: inside an allocation.
[[nodiscard]] Result<Plan> finish_plan(const CommandLine& line, Plan plan, bool as_step);

}  // namespace amldist::run
