// An environment that was written to a file by `env` or `env -0`.
#pragma once

#include <map>
#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::doctor {

/// At most this much of a file is read: more than Linux allows for a program.
inline constexpr std::size_t longest_saved_environment = 16U << 20;

/// A text with a zero byte is read as `env -0`, where values may have several lines; else each line is one variable,
/// and a line without a name continues the value before it. Errors: invalid_argument without any variable.
[[nodiscard]] Result<std::map<std::string, std::string, std::less<>>> parse_saved_environment(std::string_view content);

/// The file at `path`, "-" for standard input. Errors: not_found, limit, invalid_argument.
[[nodiscard]] Result<EnvironmentReader> read_saved_environment(const std::string& path);

}  // namespace amldist::doctor
