#include "launchers/flag.hpp"

#include <algorithm>
#include <optional>

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

Error wrong(std::string_view sentence) { return {Errc::invalid_argument, concat({sentence, " (see --help)"})}; }

std::optional<std::size_t> find_flag(std::span<const Flag> table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const Flag& flag) { return has_name(flag, name); });
  return found == table.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - table.begin()));
}

/// Flags of which `prefix` is the beginning of a long spelling.
std::vector<std::size_t> abbreviated(std::span<const Flag> table, std::string_view prefix) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto names = text::split(table[i].names, ' ');
    const bool begins =
        std::ranges::any_of(names, [&](std::string_view name) { return name.size() > 2 && name.starts_with(prefix); });
    if (begins) out.push_back(i);
  }
  return out;
}

Error unknown_flag(const Dialect& dialect, std::span<const Flag> table, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Flag& flag : table) {
    for (const std::string_view each : text::split(flag.names, ' ')) names.push_back(each);
  }
  const auto near = text::nearest(name, names);
  return wrong(concat(
      {dialect.tool, " has no flag ", quote(name),
       near ? concat({": did you mean ", *near, "?"}) : concat({"; options of Slurm are given as --slurm=", name})}));
}

/// One flag of a command line: its index in the table, and the value that stands in the same word.
struct Match {
  std::size_t flag;
  std::string name;
  std::optional<std::string> value;
};

Result<Match> match_word(const Dialect& dialect, std::span<const Flag> table, const std::string& word) {
  if (const auto exact = find_flag(table, word)) return Match{*exact, word, std::nullopt};
  const auto equals = word.find('=');
  if (dialect.equals && equals != std::string::npos) {
    const std::string name = word.substr(0, equals);
    if (const auto flag = find_flag(table, name)) return Match{*flag, name, word.substr(equals + 1)};
  }
  const std::string name = word.substr(0, dialect.equals ? equals : std::string::npos);
  if (dialect.abbreviations && name.size() > (name.starts_with("--") ? 2U : 1U)) {
    const auto flags = abbreviated(table, name);
    if (flags.size() == 1) {
      return Match{flags.front(), std::string(shown_name(table[flags.front()])),
                   equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1))};
    }
    if (flags.size() > 1) {
      return wrong(concat({quote(name), " can mean ", shown_name(table[flags[0]]), " or ", shown_name(table[flags[1]]),
                           ": write it out"}));
    }
  }
  if (dialect.attached && word.size() > 2 && word[1] != '-') {
    const auto flag = find_flag(table, std::string_view(word).substr(0, 2));
    if (flag && table[*flag].values == 1) return Match{*flag, word.substr(0, 2), word.substr(2)};
  }
  return unknown_flag(dialect, table, name);
}

}  // namespace

std::string_view to_string(FlagHandling handling) noexcept {
  switch (handling) {
    case FlagHandling::translated:
      return "translated";
    case FlagHandling::handed_on:
      return "handed on";
    case FlagHandling::ignored:
      return "ignored";
    case FlagHandling::refused:
      break;
  }
  return "refused";
}

bool has_name(const Flag& flag, std::string_view name) {
  const auto names = text::split(flag.names, ' ');
  return std::ranges::find(names, name) != names.end();
}

std::string_view shown_name(const Flag& flag) { return text::split(flag.names, ' ').back(); }

Result<Reading> read_flags(const Dialect& dialect, std::span<const Flag> table, const std::vector<std::string>& words) {
  Reading reading;
  std::size_t at = 0;
  for (; at < words.size() && words[at].starts_with('-') && words[at] != "-"; ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    auto match = match_word(dialect, table, words[at]);
    if (!match) return match.error();
    const Flag& flag = table[match->flag];
    GivenFlag given{match->flag, std::move(match->name), {}};
    if (match->value && flag.values == 0) return wrong(concat({given.name, " takes no value"}));
    if (match->value) given.values.push_back(std::move(*match->value));
    while (given.values.size() < flag.values) {
      if (++at >= words.size()) return wrong(concat({given.name, " needs a value"}));
      given.values.push_back(words[at]);
    }
    reading.flags.push_back(std::move(given));
  }
  reading.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return reading;
}

Result<std::uint32_t> number_of(const GivenFlag& given, std::uint32_t low, std::uint32_t high) {
  const auto number = text::to_number(given.value(), high);
  if (number && *number >= low) return static_cast<std::uint32_t>(*number);
  return Error{Errc::invalid_argument, concat({given.name, " ", quote(given.value()),
                                               " is not possible: give a whole number "
                                               "from ",
                                               std::to_string(low), " to ", std::to_string(high)})};
}

}  // namespace amldist::launchers
