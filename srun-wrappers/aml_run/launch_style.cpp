#include "aml_run/launch_style.hpp"

#include <algorithm>
#include <array>

#include "shared/task_variables.hpp"

namespace amldist::run {
namespace {

/// Whether `word` stands in the line on its own: as a command, a path's last part, or a module behind -m.
bool has_word(std::string_view line, std::string_view word) {
  constexpr std::string_view before = " \t\n;&|(/='\"";
  constexpr std::string_view behind = " \t\n;&|)'\"";
  for (auto at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const bool begins = at == 0 || before.find(line[at - 1]) != std::string_view::npos;
    const std::size_t end = at + word.size();
    const bool ends = end == line.size() || behind.find(line[end]) != std::string_view::npos;
    if (begins && ends) return true;
  }
  return false;
}

constexpr std::array<std::string_view, 4> launchers = {"torchrun", "torch.distributed.launch", "torch.distributed.run",
                                                       "accelerate launch"};

}  // namespace

std::optional<std::string_view> launcher_in(std::string_view shell_line) {
  const auto* const found =
      std::ranges::find_if(launchers, [&](std::string_view launcher) { return has_word(shell_line, launcher); });
  return found == launchers.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::string_view> launcher_in(std::span<const std::string> words) {
  const std::string_view program = words.front();
  const std::string_view name = program.substr(program.rfind('/') + 1);
  if (name == launchers[0]) return launchers[0];
  if (name == "accelerate" && words.size() > 1 && words[1] == "launch") return launchers[3];
  for (std::size_t i = 1; name.starts_with("python") && i + 1 < words.size(); ++i) {
    if (words[i] != "-m") continue;
    const auto* const module = std::ranges::find(launchers, std::string_view(words[i + 1]));
    return module == launchers.end() ? std::nullopt : std::optional(*module);
  }
  return std::nullopt;
}

bool reads_rank_variables(std::string_view shell_line) {
  constexpr std::array<std::string_view, 4> names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  return std::ranges::any_of(names, [&](std::string_view name) { return commands::mentions(shell_line, name); });
}

}  // namespace amldist::run
