// The words of a line for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amldist::text {

/// The words of a line, command by command (";", "&&", "|", "(" and line ends part them): quotes are taken off,
/// comments left out, nothing is expanded. Pure.
[[nodiscard]] std::vector<std::vector<std::string>> shell_commands(std::string_view line);

}  // namespace amldist::text
