#include "shared/switch_value.hpp"

#include <CLI/CLI.hpp>
#include <string_view>

namespace amldist::commands {
namespace {

bool is_switch(const CLI::Option* option) {
  return option != nullptr && option->get_items_expected_max() == 0 && option->get_disable_flag_override();
}
bool needs_value(const CLI::Option* option) { return option != nullptr && option->get_items_expected_min() > 0; }

/// What a word that begins with "-" is.
struct Word {
  std::string valued_switch;    ///< a switch that has a value; empty: none is in the word
  bool takes_the_next = false;  ///< the next word is its value
};

Word read_long(const CLI::App& app, const std::string& word) {
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const CLI::Option* const option = app.get_option_no_throw(name);
  const bool apart = equals == std::string::npos;
  return {!apart && is_switch(option) ? name : "", apart && needs_value(option)};
}

/// "-qv", "-N2", "-h=3".
Word read_letters(const CLI::App& app, std::string_view word) {
  for (std::size_t i = 1; i < word.size(); ++i) {
    const std::string name = {'-', word[i]};
    const CLI::Option* const option = app.get_option_no_throw(name);
    if (!is_switch(option)) return {"", needs_value(option) && i + 1 == word.size()};
    if (i + 1 < word.size() && word[i + 1] == '=') return {name};
  }
  return {};
}

}  // namespace

std::optional<std::string> switch_with_value(const CLI::App& app, std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (!word.starts_with('-')) continue;
    const Word read = word.starts_with("--") ? read_long(app, word) : read_letters(app, word);
    if (!read.valued_switch.empty()) return read.valued_switch;
    if (read.takes_the_next) ++i;
  }
  return std::nullopt;
}

}  // namespace amldist::commands
