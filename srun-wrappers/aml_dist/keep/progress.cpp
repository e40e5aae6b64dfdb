#include "aml_dist/keep/progress.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>

#include "base/os/child_process.hpp"
#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

/// Marks of files are in the order of their times, of which archives often have 1980. Empty for what is not a regular
/// file.
std::string mark_of(const std::string& path) {
  constexpr std::int64_t wide = 1'000'000'000'000'000;  // all numbers have as many digits
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const std::int64_t seconds = wide + std::clamp<std::int64_t>(info.st_mtim.tv_sec, 0, wide);
  return text::concat({std::to_string(seconds), ".", std::to_string(1'000'000'000 + info.st_mtim.tv_nsec), " ",
                       std::to_string(info.st_size), " ", path});
}

}  // namespace

std::string newest_below(const std::string& folder) {
  namespace fs = std::filesystem;
  constexpr int most_files = 1'000'000;
  std::string newest;
  std::error_code error;
  int files = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end && files < most_files; at.increment(error), ++files) {
    newest = std::max(newest, mark_of(at->path().string()));
  }
  return newest;
}

std::string progress_of(const std::string& file_or_command) {
  if (std::string mark = mark_of(file_or_command); !mark.empty()) return mark;
  constexpr std::chrono::seconds limit{10};
  constexpr std::size_t most = 65536;
  const auto output = output_of({.words = {"/bin/sh", "-c", file_or_command}}, Clock::now() + limit, most);
  return output && output->status == 0 ? output->text : std::string();
}

}  // namespace amldist::keep
