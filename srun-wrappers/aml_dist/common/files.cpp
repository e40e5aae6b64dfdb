#include "aml_dist/common/files.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {

Result<void> check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  const bool is_new = !fs::exists(path, ignored);
  if (fs::is_directory(path, ignored)) errno = EISDIR;
  else if (::access(is_new ? folder.c_str() : path.c_str(), W_OK) == 0) return {};
  return Error{Errc::unavailable, text::concat({text::quote(path), " cannot be written: ", std::strerror(errno)})};
}

Result<void> write_file(const std::string& path, std::string_view content) {
  const auto written = write_whole_file(path, content);
  if (written) return {};
  return Error{written.error().code,
               text::concat({text::quote(path), " cannot be written: ", written.error().message})};
}

}  // namespace amldist::tools
