// The table of aml-run, where aml-run is built.
#include <unistd.h>

#include "aml_dist/check_config/site_files.hpp"
#include "aml_run/site_table.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

/// A folder that the table names for all nodes.
void check_folder(std::string_view key, const std::string& folder, Findings& findings) {
  if (!folder.empty() && ::access(folder.c_str(), F_OK) != 0)
    findings.error(0, concat({key, ": ", folder, " does not exist"}),
                   "create it on a file system that all nodes share");
}

/// An error of the table, "FILE:LINE:COLUMN: what is wrong", with its place told apart.
void add_error(const std::string& file, std::string_view message, Findings& findings) {
  std::size_t line = 0;
  if (message.starts_with(concat({file, ":"}))) {
    message.remove_prefix(file.size() + 1);
    line = text::to_number(message.substr(0, message.find(':')), 1'000'000).value_or(0);
    message.remove_prefix(std::min(message.find(": ") + 2, message.size()));
  }
  findings.error(line, std::string(message));
}

}  // namespace

std::string instance_types_path() { return run::default_site_table(); }

bool examine_instance_types(const std::string& path, Findings& findings) {
  if (::access(path.c_str(), F_OK) != 0) return false;
  findings.begin(path);
  const auto table = run::read_site_table(path, true);
  if (!table) {
    add_error(path, table.error().message, findings);
    return true;
  }
  check_folder("downloads", table->downloads, findings);
  check_folder("conda", table->conda.folder, findings);
  return true;
}

}  // namespace amldist::tools
