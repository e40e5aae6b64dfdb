#include "aml_run/snapshot/ignore_list.hpp"

#include <fnmatch.h>

#include <span>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

bool match_parts(std::span<const std::string> pattern, std::span<const std::string> path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() == "**") {
    // At the end it means the content of a folder, not the folder.
    if (pattern.size() == 1) return !path.empty();
    for (std::size_t skip = 0; skip <= path.size(); ++skip) {
      if (match_parts(pattern.subspan(1), path.subspan(skip))) return true;
    }
    return false;
  }
  return !path.empty() && ::fnmatch(pattern.front().c_str(), path.front().c_str(), 0) == 0 &&
         match_parts(pattern.subspan(1), path.subspan(1));
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> out;
  for (const std::string_view part : text::split(path, '/')) {
    if (!part.empty()) out.emplace_back(part);
  }
  return out;
}

/// Without trailing blanks, unless a backslash keeps them.
std::string_view trim_end(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

}  // namespace

IgnoreList::IgnoreList(std::string_view text) {
  for (std::string_view line : text::split(text, '\n')) {
    line = trim_end(line);
    if (line.empty() || line.front() == '#') continue;
    Pattern pattern;
    pattern.is_exception = line.front() == '!';
    if (pattern.is_exception) line.remove_prefix(1);
    if (line.empty()) continue;
    pattern.only_folders = line.ends_with('/');
    // A slash at the beginning or inside anchors the pattern to the code folder.
    const auto slash = line.find('/');
    const bool is_anchored = slash != std::string_view::npos && slash + 1 < line.size();
    pattern.parts = parts_of(line);
    if (pattern.parts.empty()) continue;
    if (!is_anchored) pattern.parts.insert(pattern.parts.begin(), "**");
    patterns_.push_back(std::move(pattern));
  }
}

bool IgnoreList::matches(std::string_view path, bool is_folder) const {
  const auto parts = parts_of(path);
  bool out = false;
  for (const Pattern& pattern : patterns_) {
    if (pattern.only_folders && !is_folder) continue;
    if (match_parts(pattern.parts, parts)) out = !pattern.is_exception;
  }
  return out;
}

}  // namespace amldist::run
