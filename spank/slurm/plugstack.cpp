#include "spank/slurm/plugstack.hpp"

#include <glob.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::spank {
namespace {

constexpr int deepest_include = 4;

/// The next word of a line; plugstack.conf separates by blanks.
std::string_view take_word(std::string_view& line) {
  line = text::trim(line);
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  line.remove_prefix(word.size());
  return word;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// Where srun finds its configuration; the last one is slurmd's copy on a configless node.
std::string slurm_conf_path() {
  constexpr const char* ordinary = "/etc/slurm/slurm.conf";
  if (const auto variable = own_variable("SLURM_CONF")) return *variable;
  return std::ifstream(ordinary).good() ? ordinary : "/run/slurm/conf/slurm.conf";
}

/// slurm.conf's PlugStackConfig, else plugstack.conf in the same folder.
std::string plugstack_path() {
  const std::string slurm_conf = slurm_conf_path();
  std::ifstream file(slurm_conf);
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view key = "plugstackconfig=";
    if (text::to_lower(line).starts_with(key))
      return std::string(text::trim(std::string_view(line).substr(key.size())));
  }
  return folder_of(slurm_conf) + "plugstack.conf";
}

/// Files that match a pattern; a relative one counts from the folder of the file that names it.
std::vector<std::string> files_of(const std::string& pattern, const std::string& folder) {
  glob_t found = {};
  const std::string whole = pattern.starts_with('/') ? pattern : folder + pattern;
  std::vector<std::string> files;
  if (::glob(whole.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

std::optional<bool> search(const std::string& path, int depth) {
  const auto content = launch::read_config_file(path);
  if (!content || depth > deepest_include) return std::nullopt;
  const Plugstack stack = parse_plugstack(*content);
  if (stack.optional) return stack.optional;
  for (const std::string& pattern : stack.includes) {
    for (const std::string& file : files_of(pattern, folder_of(path))) {
      if (const auto found = search(file, depth + 1)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

Plugstack parse_plugstack(std::string_view content) {
  Plugstack stack;
  for (std::string_view line : launch::config_lines(content)) {
    const std::string_view first = take_word(line);
    const std::string_view second = take_word(line);
    if (first == "include") stack.includes.emplace_back(second);
    const bool ours = second == "spank_aml_dist.so" || second.ends_with("/spank_aml_dist.so");
    if (ours && first == "optional") stack.optional = true;
    if (ours && first == "required") stack.optional = false;
  }
  return stack;
}

bool is_loaded_as_optional() { return search(plugstack_path(), 0).value_or(false); }

}  // namespace amldist::spank
