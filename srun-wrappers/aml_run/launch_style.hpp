// Whether a command starts the processes of a node by itself.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amldist::run {

/// The launcher that a shell line starts ("torchrun", "torch.distributed.launch", ...). nullopt if it starts no known
/// launcher.
[[nodiscard]] std::optional<std::string_view> launcher_in(std::string_view shell_line);

/// The same for a command that no shell reads.
[[nodiscard]] std::optional<std::string_view> launcher_in(std::span<const std::string> words);

/// Whether the line reads variables that only a rank has (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), and that a
/// per-node launcher therefore does not get.
[[nodiscard]] bool reads_rank_variables(std::string_view shell_line);

}  // namespace amldist::run
