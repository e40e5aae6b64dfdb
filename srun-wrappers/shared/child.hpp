// Child processes: the one place where the commands start and await them. Never through a shell.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace amldist::commands {

/// A program and what it starts with.
struct ChildProgram {
  std::vector<std::string> words;                       ///< without '/' in the first one, PATH is searched
  std::optional<std::vector<std::string>> environment;  ///< "NAME=VALUE"; absent: this process's
  int standard_input = STDIN_FILENO;                    ///< descriptors of this process that become its streams
  int standard_output = STDOUT_FILENO;
  int standard_error = STDERR_FILENO;
  bool own_group = false;  ///< a Ctrl-C at the terminal does not reach it
};

/// Starts it with no signal blocked and SIGPIPE at its default, and returns at once. Descriptors without FD_CLOEXEC are
/// inherited. Errors: not_found, unavailable (not executable), internal (no process).
[[nodiscard]] Result<pid_t> start_child(const ChildProgram& program);

/// Becomes the program; returns only on failure. Errors: not_found (no such program), unavailable (not executable).
[[nodiscard]] Error become(const std::vector<std::string>& words);

/// A wait status as a shell says it: the exit status, or 128 + signal.
[[nodiscard]] int shell_status(int wait_status) noexcept;

/// Waits until the child has ended; its shell_status().
[[nodiscard]] int await_child(pid_t child) noexcept;

/// The shell_status() of a child that has ended; nullopt while it runs.
[[nodiscard]] std::optional<int> poll_child(pid_t child) noexcept;

}  // namespace amldist::commands
