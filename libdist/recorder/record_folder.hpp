// Where recorders lie: one folder per user, one per step in it, one file per rank in that.
//
//   AMLDIST_TRACE_DIR/42.0/3.trace           where the variable is set; "off" (or "none") switches recording off
//   /dev/shm/aml-dist-1000/42.0/3.trace      else: memory, so that no file system slows a call down
//   /tmp/aml-dist-1000/42.0/3.trace          where there is no /dev/shm
//
// The user's folder is made with mode 0700 and is taken only if it is a real folder, the user's, and closed to others;
// in a world-writable parent somebody else may have made it first, and then the next place is tried.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace amldist::collective {

/// Folders that may hold a user's steps, in the order in which they are tried; `given` is AMLDIST_TRACE_DIR, empty
/// where it is not set. None: recording is switched off.
[[nodiscard]] std::vector<std::string> trace_roots(const std::string& given, unsigned user);

/// Whether a text can name a step's folder: letters, digits, '.', '_' and '-', not first '.', at most 100.
[[nodiscard]] bool is_trace_name(std::string_view name) noexcept;

/// `text` with every character that a step's name cannot have replaced by '_', for names that come from elsewhere
/// (a PMIx namespace). Never empty.
[[nodiscard]] std::string trace_name(std::string_view text);

/// The step's folder under the first root that can be had, made if need be; and prune_steps() is called on the way
/// where no variable names the root. nullopt: recording is switched off.
[[nodiscard]] Result<std::optional<std::string>> make_trace_folder(const std::string& given, std::string_view step);

/// Dead steps that stay readable in a user's folder.
inline constexpr std::size_t kept_steps = 16;

/// Removes the user's oldest steps in `root` beyond the newest kept_steps, with `own_step` counted; never one of which
/// a process still writes a file.
void prune_steps(const std::string& root, std::string_view own_step);

}  // namespace amldist::collective
