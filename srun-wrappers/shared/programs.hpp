// Starts other programs: found in PATH, never through a shell.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::commands {

/// The result of a program that has ended.
struct Finished {
  int status = 0;  ///< its exit status, or 128 + signal
  std::string out;
  std::string err;
};

/// Most that is usually kept of a program's standard output and of its errors, in bytes; the rest is read and dropped.
inline constexpr std::size_t longest_capture = std::size_t{4} * 1024 * 1024;

/// Path of an executable file called `name` in PATH.
[[nodiscard]] std::optional<std::string> find_program(std::string_view name);
/// The same in another list of folders, separated by colons; an empty entry is the working folder.
[[nodiscard]] std::optional<std::string> find_program_in(std::string_view path, std::string_view name);

/// Runs a program to its end with `input` as its standard input. Interrupts from the terminal do not reach it.
/// Errors: unavailable (not in PATH), internal.
[[nodiscard]] Result<Finished> run_program(const std::vector<std::string>& words, std::string_view input = {},
                                           std::size_t most = longest_capture);

/// The program of this product beside the running one, or its bare name if it is not there.
[[nodiscard]] std::string sibling_program(std::string_view name);

/// A whole regular file of at most `limit` bytes. Errors: not_found, limit, unavailable.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t limit);

}  // namespace amldist::commands
