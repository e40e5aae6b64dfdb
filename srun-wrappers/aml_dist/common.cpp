#include "aml_dist/common.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

Result<void> write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (file) return {};
  return Error{Errc::unavailable, text::concat({text::quote(path), " cannot be written: ", std::strerror(errno)})};
}

}  // namespace amldist::tools
