// The descendants of this process.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

namespace amldist {

/// The parent in the text of /proc/ID/stat, "ID (COMMAND) STATE PARENT ..."; nullopt if malformed. A command may
/// contain anything, even parentheses and newlines.
[[nodiscard]] std::optional<pid_t> parent_in_stat(std::string_view stat);

/// All descendants of this process, parents first, as /proc shows them now. Empty without /proc.
[[nodiscard]] std::vector<pid_t> descendants();

}  // namespace amldist
