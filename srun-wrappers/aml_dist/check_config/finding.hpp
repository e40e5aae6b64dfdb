// What `aml-dist check-config` finds in the administrator's files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::tools {

enum class Severity { error, warning };

struct Finding {
  Severity severity = Severity::error;
  std::string file;
  std::size_t line = 0;  ///< 0: the file as a whole
  std::string problem;   ///< what is asked for and what is
  std::string remedy;    ///< what to do; may be empty
};

/// Collects findings about one file after another.
class Findings {
 public:
  /// Names a file as examined; findings that follow are about it.
  void begin(const std::string& file) {
    files_.push_back(file);
    about(file);
  }
  /// Findings that follow are about this file, which was examined before.
  void about(const std::string& file) { current_ = file; }
  void error(std::size_t line, std::string problem, std::string remedy = {}) {
    found_.push_back({Severity::error, current_, line, std::move(problem), std::move(remedy)});
  }
  void warn(std::size_t line, std::string problem, std::string remedy = {}) {
    found_.push_back({Severity::warning, current_, line, std::move(problem), std::move(remedy)});
  }

  [[nodiscard]] const std::vector<std::string>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<Finding>& found() const noexcept { return found_; }

 private:
  std::vector<std::string> files_;
  std::string current_;
  std::vector<Finding> found_;
};

}  // namespace amldist::tools
