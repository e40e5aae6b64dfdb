#include "spank/command_line.hpp"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/file_descriptor.hpp"
#include "core/text.hpp"

namespace amldist::spank {
namespace {

/// The beginning of /proc/self/cmdline; a longer one holds more than a wish for help.
std::string read_command_line() {
  constexpr std::size_t enough = 4096;
  const FileDescriptor file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::string text(enough, '\0');
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 && static_cast<std::size_t>(got) < enough ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

bool asks_only_for_help() {
  const std::string text = read_command_line();
  auto words = text::split(text, '\0');
  if (words.size() < 3) return false;
  words.erase(words.begin());  // the program
  words.pop_back();            // behind the last zero
  const bool only_options = std::ranges::all_of(words, [](std::string_view word) { return word.starts_with('-'); });
  return only_options && std::ranges::find(words, "--aml-dist=help") != words.end();
}

}  // namespace amldist::spank
