#include "launch/site/plugstack.hpp"

#include <glob.h>

#include <cstdlib>
#include <fstream>

#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::launch {
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

/// Files that match a pattern; a relative one counts from the folder of the file that names it.
std::vector<std::string> files_of(const std::string& pattern, const std::string& folder) {
  glob_t found = {};
  const std::string whole = pattern.starts_with('/') ? pattern : folder + pattern;
  std::vector<std::string> files;
  if (::glob(whole.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

void read_into(std::vector<PlugstackFile>& files, const std::string& path, int depth) {
  constexpr std::size_t most_files = 256;
  if (files.size() == most_files) return;
  const auto content = read_whole_file(path, longest_config);
  if (!content) return files.push_back({path, content.error().message, {}});
  Plugstack stack = parse_plugstack(*content);
  files.push_back({path, {}, std::move(stack.lines)});
  if (depth == deepest_include) return;
  for (const std::string& pattern : stack.includes) {
    for (const std::string& file : files_of(pattern, folder_of(path))) read_into(files, file, depth + 1);
  }
}

bool is_this_plugin(std::string_view path) {
  constexpr std::string_view file = "spank_aml_dist.so";
  return path == file || (path.ends_with(file) && path[path.size() - file.size() - 1] == '/');
}

}  // namespace

Plugstack parse_plugstack(std::string_view content) {
  Plugstack stack;
  std::size_t number = 0;
  for (std::string_view line : text::split(content, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::string_view first = take_word(line);
    const std::string_view second = take_word(line);
    if (first == "include") stack.includes.emplace_back(second);
    if ((first != "optional" && first != "required") || !is_this_plugin(second)) continue;
    PluginLine found = {number, first == "optional", std::string(second), {}};
    for (auto word = take_word(line); !word.empty(); word = take_word(line)) found.arguments.emplace_back(word);
    stack.lines.push_back(std::move(found));
  }
  return stack;
}

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

std::vector<PlugstackFile> read_plugstack(const std::string& path) {
  std::vector<PlugstackFile> files;
  read_into(files, path, 0);
  return files;
}

bool is_loaded_as_optional() {
  for (const PlugstackFile& file : read_plugstack(plugstack_path())) {
    if (!file.lines.empty()) return file.lines.back().is_optional;
  }
  return false;
}

}  // namespace amldist::launch
