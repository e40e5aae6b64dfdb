#include "aml_run/launch_style.hpp"

#include <algorithm>
#include <array>

#include "shared/task_variables.hpp"

namespace amldist::run {

bool reads_rank_variables(std::string_view shell_line) {
  constexpr std::array<std::string_view, 4> names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  return std::ranges::any_of(names, [&](std::string_view name) { return commands::mentions(shell_line, name); });
}

}  // namespace amldist::run
