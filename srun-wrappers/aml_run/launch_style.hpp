// Which variables a command reads.
#pragma once

#include <string_view>

namespace amldist::run {

/// Whether the line reads variables that only a rank has (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), and that a
/// per-node launcher therefore does not get.
[[nodiscard]] bool reads_rank_variables(std::string_view shell_line);

}  // namespace amldist::run
