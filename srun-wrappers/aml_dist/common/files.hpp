// What the subcommands share: the way they speak of errors, read their environment and write files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace amldist::tools {

/// A variable of this process.
[[nodiscard]] std::optional<std::string> own_variable(std::string_view name);

/// Prints one line to standard error; returns the ExitStatus that goes with the error.
int fail(const Error& error);

/// Whether a file of that name can probably be written; changes nothing.
[[nodiscard]] Result<void> check_writable(const std::string& path);
/// Writes or replaces a file. Errors: not writable.
[[nodiscard]] Result<void> write_file(const std::string& path, std::string_view content);

}  // namespace amldist::tools
