#include "spank/srun/command_line.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/launcher_daemons.hpp"

namespace amldist::spank {
namespace {

/// /proc/self/cmdline: words that end in zeros.
std::string read_command_line() {
  constexpr std::size_t most = 16UL << 20;  // of arguments and environment together, as Linux limits them by default
  return read_file_start("/proc/self/cmdline", most);
}

/// The words behind the program's name.
std::vector<std::string_view> arguments_of(const std::string& command_line) {
  auto words = text::split(command_line, '\0');
  words.pop_back();  // behind the last zero
  if (!words.empty()) words.erase(words.begin());
  return words;
}

/// The value of an option at words[i], behind '=' or as the next word; nullopt for another word.
std::optional<std::string_view> value_of_option(std::span<const std::string_view> words, std::size_t i,
                                                std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (!words[i].starts_with(name)) continue;
    const std::string_view rest = words[i].substr(name.size());
    if (rest.starts_with('=')) return rest.substr(1);
    if (rest.empty() && i + 1 < words.size()) return words[i + 1];
  }
  return std::nullopt;
}

/// Reads "0,2-3"; empty for a text that is no such list.
std::vector<std::uint32_t> parse_groups(std::string_view list) {
  constexpr std::uint64_t most_groups = 128;  // MAX_HET_JOB_COMPS in Slurm
  std::vector<std::uint32_t> groups;
  for (const std::string_view piece : text::split(list, ',')) {
    const auto dash = piece.find('-');
    const auto low = text::to_number(piece.substr(0, dash), most_groups - 1);
    const auto high = dash == std::string_view::npos ? low : text::to_number(piece.substr(dash + 1), most_groups - 1);
    if (!low || !high) return {};
    for (std::uint64_t group = *low; group <= *high; ++group) groups.push_back(static_cast<std::uint32_t>(group));
  }
  return groups;
}

}  // namespace

bool asks_only_for_help() {
  const std::string text = read_command_line();
  const auto words = arguments_of(text);
  const bool only_options = std::ranges::all_of(words, [](std::string_view word) { return word.starts_with('-'); });
  return only_options && std::ranges::find(words, "--aml-dist=help") != words.end();
}

std::vector<std::uint32_t> component_groups() {
  const std::string text = read_command_line();
  std::vector<std::uint32_t> groups;
  std::uint32_t component = 0;
  bool named = false;  // without the option a component has the number of its place on the command line
  const auto finish = [&] {
    if (!named) groups.push_back(component);
    named = false;
    ++component;
  };
  const auto words = arguments_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ":") finish();
    const auto list = value_of_option(words, i, {"--het-group", "--pack-group"});
    const auto numbers = list ? parse_groups(*list) : std::vector<std::uint32_t>{};
    named = named || !numbers.empty();
    groups.insert(groups.end(), numbers.begin(), numbers.end());
  }
  finish();
  std::ranges::sort(groups);
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

bool has_component_separator() {
  const std::string text = read_command_line();
  return std::ranges::any_of(arguments_of(text), [](std::string_view word) { return word == ":"; });
}

bool starts_launcher_daemon() {
  const std::string text = read_command_line();
  return std::ranges::any_of(arguments_of(text), launch::is_launcher_daemon);
}

bool names_a_job() {
  const std::string text = read_command_line();
  return std::ranges::any_of(arguments_of(text), [](std::string_view word) { return word.starts_with("--jobid"); });
}

std::optional<bool> kills_on_bad_exit(std::size_t program_words) {
  const std::string text = read_command_line();
  auto words = arguments_of(text);
  // Components have a program each: then it is not known where those begin.
  if (std::ranges::find(words, ":") == words.end()) words.resize(words.size() - std::min(words.size(), program_words));
  for (const std::string_view word : words) {
    if (word.starts_with("-K")) return word != "-K0";
    if (word.starts_with("--kill-on")) return !word.ends_with("=0");
  }
  const auto variable = own_variable("SLURM_KILL_BAD_EXIT");
  return variable ? std::optional(*variable != "0") : std::nullopt;
}

}  // namespace amldist::spank
