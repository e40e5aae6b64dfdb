// The descendants of this process, and signals that reach no other process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"

namespace amldist {

/// The parent in the text of /proc/ID/stat, "ID (COMMAND) STATE PARENT ..."; nullopt if malformed. A command may
/// contain anything, even parentheses and newlines.
[[nodiscard]] std::optional<pid_t> parent_in_stat(std::string_view stat);

/// A handle of the process that has this number now (pidfd_open(2)); empty if no process has it, or before Linux 5.4.
[[nodiscard]] FileDescriptor open_process(pid_t id) noexcept;

/// Sends a signal to the process of a handle; to nobody if it has ended.
void send_signal(const FileDescriptor& handle, int signal) noexcept;

/// Sends a signal to every process below this one, and to no other, even where one ends meanwhile and its number is in
/// use again.
void signal_descendants(int signal);

/// All descendants of this process, parents first, as /proc shows them now. Empty without /proc.
[[nodiscard]] std::vector<pid_t> descendants();

}  // namespace amldist
