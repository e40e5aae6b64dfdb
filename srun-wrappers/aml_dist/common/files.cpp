#include "aml_dist/common.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "aml_dist/exit_status.hpp"
#include "core/text.hpp"

namespace amldist::tools {

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

int fail(const Error& error) {
  std::fprintf(stderr, "aml-dist: %s\n", error.message.c_str());
  return error.code == Errc::invalid_argument ? exit_usage : exit_failed;
}

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
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (file) return {};
  return Error{Errc::unavailable, text::concat({text::quote(path), " cannot be written: ", std::strerror(errno)})};
}

}  // namespace amldist::tools
