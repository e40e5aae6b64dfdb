// The processes below this one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

namespace amldist {

/// The parent in the text of /proc/ID/stat, "ID (COMMAND) STATE PARENT ..."; nullopt for no such text. A command may
/// hold anything, parentheses and lines that look like this one too.
[[nodiscard]] std::optional<pid_t> parent_in_stat(std::string_view stat);

/// Children of this process, their children and so on, parents first, as /proc shows them now. Without /proc: none.
[[nodiscard]] std::vector<pid_t> descendants();

}  // namespace amldist
