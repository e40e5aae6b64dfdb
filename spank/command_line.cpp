#include "spank/command_line.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_descriptor.hpp"
#include "core/text.hpp"

namespace amldist::spank {
namespace {

/// /proc/self/cmdline: words that end in zeros.
std::string read_command_line() {
  const FileDescriptor file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t got = 1; file && got > 0;) {
    got = ::read(file.get(), piece.data(), piece.size());
    if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return text;
}

/// The words behind the program's name.
std::vector<std::string_view> arguments_of(const std::string& command_line) {
  auto words = text::split(command_line, '\0');
  words.pop_back();  // behind the last zero
  if (!words.empty()) words.erase(words.begin());
  return words;
}

}  // namespace

bool asks_only_for_help() {
  const std::string text = read_command_line();
  const auto words = arguments_of(text);
  const bool only_options = std::ranges::all_of(words, [](std::string_view word) { return word.starts_with('-'); });
  return only_options && std::ranges::find(words, "--aml-dist=help") != words.end();
}

bool may_start_components() {
  const std::string text = read_command_line();
  return std::ranges::any_of(arguments_of(text), [](std::string_view word) {
    return word == ":" || word.starts_with("--het-group") || word.starts_with("--pack-group");
  });
}

bool has_component_separator() {
  const std::string text = read_command_line();
  return std::ranges::any_of(arguments_of(text), [](std::string_view word) { return word == ":"; });
}

std::optional<bool> kills_on_bad_exit() {
  const std::string text = read_command_line();
  for (const std::string_view word : arguments_of(text)) {
    if (word.starts_with("-K")) return word != "-K0";
    if (word.starts_with("--kill-on")) return !word.ends_with("=0");
  }
  const char* const variable = std::getenv("SLURM_KILL_BAD_EXIT");
  if (variable == nullptr) return std::nullopt;
  return std::string_view(variable) != "0";
}

}  // namespace amldist::spank
