// Where flight recorders are: one folder per user, in it one per step, in it one file per rank.
//
//   AMLDIST_TRACE_DIR/42.0/3.trace           where the variable is set; "off" (or "none") switches recording off
//   /dev/shm/aml-dist-1000/42.0/3.trace      otherwise: memory, so that no file system delays a call
//   /tmp/aml-dist-1000/42.0/3.trace          where there is no /dev/shm
//
// The user's folder is created with mode 0700. It is used only if it is a real folder, belongs to the user and is
// closed to others. In a world-writable parent another user may have created it first; then the next place is tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::trace {

/// Folders that may hold a user's steps, in the order in which they are tried; `given` is AMLDIST_TRACE_DIR, empty if
/// unset. An empty list means that recording is off.
[[nodiscard]] std::vector<std::string> trace_roots(const std::string& given, unsigned user);

/// Those of trace_roots() in which nobody else can have put anything: anybody can make this process's user's own folder
/// in /dev/shm and /tmp first. A folder that a variable names is its user's choice.
[[nodiscard]] std::vector<std::string> believed_roots(std::vector<std::string> roots);

/// Whether a text can name a step's folder: letters, digits, '.', '_' and '-', not starting with '.', at most 100.
[[nodiscard]] bool is_trace_name(std::string_view name) noexcept;

/// `text` with every character that a step's name may not contain replaced by '_'; for names from elsewhere (a PMIx
/// namespace). Never empty.
[[nodiscard]] std::string trace_name(std::string_view text);

/// The step's folder under the first usable root, created if needed. If no variable names the root, prune_steps() runs
/// too. nullopt: recording is off.
[[nodiscard]] Result<std::optional<std::string>> make_trace_folder(const std::string& given, std::string_view step);

/// This process's user's own folder on this node, the first usable one of trace_roots(), created if needed.
[[nodiscard]] Result<std::string> make_user_folder();

/// How many ended steps are kept in a user's folder, and how many bytes of them.
inline constexpr std::size_t kept_steps = 16;
inline constexpr std::uint64_t kept_bytes = 64UL << 20;

/// Removes the user's oldest steps in `root` so that kept_steps remain, including `own_step`, and kept_bytes besides
/// it. Never removes a step that a process still writes.
void prune_steps(const std::string& root, std::string_view own_step);

}  // namespace amldist::trace
