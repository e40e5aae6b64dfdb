// .amlignore, or else .gitignore, of a code folder: which files a snapshot leaves out. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amldist::run {

class IgnoreList {
 public:
  /// Reads the lines: comments, !exceptions, /anchors, folders/, *, ?, [a-z] and **, as git does.
  explicit IgnoreList(std::string_view text);

  /// Whether the file or folder at `path`, relative to the code folder and without a slash at its ends, is left out. A
  /// folder that is left out includes everything in it; its parts need not be checked.
  [[nodiscard]] bool matches(std::string_view path, bool is_folder) const;

 private:
  struct Pattern {
    std::vector<std::string> parts;  ///< between slashes; "**" means any number of folders
    bool is_exception = false;
    bool only_folders = false;
  };
  std::vector<Pattern> patterns_;
};

}  // namespace amldist::run
