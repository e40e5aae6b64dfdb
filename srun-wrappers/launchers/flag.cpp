#include "launchers/flag.hpp"

#include <algorithm>
#include <optional>

#include "launchers/python_value.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

Error wrong(std::string_view sentence) { return {Errc::invalid_argument, concat({sentence, " (see --help)"})}; }

std::optional<std::size_t> find_flag(std::span<const Flag> table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const Flag& flag) { return has_name(flag, name); });
  return found == table.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - table.begin()));
}

/// Flags that the real tools do not have, or only an older one (torch.distributed.launch): they must be written out, so
/// that no prefix of a real flag is ambiguous.
bool is_our_own(std::string_view name) {
  return name == "--dry-run" || name == "--slurm" || name == "--list-flags" || name == "--json" ||
         name == "--use_env" || name == "--use-env";
}

struct Spelling {
  std::size_t flag;
  std::string_view name;
};

/// Long spellings that begin with `prefix`. argparse counts two spellings of one flag as two.
std::vector<Spelling> abbreviated(std::span<const Flag> table, std::string_view prefix) {
  std::vector<Spelling> out;
  if (prefix.size() < 2 || prefix == "--") return out;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].names == "--version") continue;  // the real tools that have one call it -v or -V, too
    for (const std::string_view name : text::split(table[i].names, ' ')) {
      if (name.starts_with(prefix) && !is_our_own(name)) out.push_back({i, name});
    }
  }
  return out;
}

/// "-1", "-.5": argparse takes them for values, because no flag looks like that.
bool is_negative_number(std::string_view word) {
  if (!word.starts_with('-')) return false;
  word.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto point = word.find('.');
  const std::string_view whole = word.substr(0, point);
  const std::string_view fraction = point == std::string_view::npos ? std::string_view("0") : word.substr(point + 1);
  return std::ranges::all_of(whole, is_digit) && std::ranges::all_of(fraction, is_digit) && !fraction.empty() &&
         (!whole.empty() || point != std::string_view::npos);
}

/// Whether argparse takes a word for a flag, and not for a value or the program.
bool looks_like_flag(std::span<const Flag> table, std::string_view word) {
  if (word.size() < 2 || word.front() != '-') return false;
  const std::string_view name = word.substr(0, word.find('='));
  if (find_flag(table, word) || find_flag(table, name) || !abbreviated(table, name).empty()) return true;
  const auto letter = find_flag(table, word.substr(0, 2));
  if (letter && word[1] != '-') return true;
  return !is_negative_number(word) && word.find(' ') == std::string_view::npos;
}

/// Of Slurm, or of pyxis.
bool is_option_of_slurm(std::string_view name) {
  if (!name.starts_with("--")) return false;
  name.remove_prefix(2);
  return commands::find_slurm_option(name) != nullptr || name.starts_with("container-");
}

Error unknown_flag(const Dialect& dialect, std::span<const Flag> table, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Flag& flag : table) {
    for (const std::string_view each : text::split(flag.names, ' ')) names.push_back(each);
  }
  const auto near = text::nearest(name, names);
  std::string remedy = ": --list-flags shows those that it has";
  if (is_option_of_slurm(name)) remedy = concat({"; options of Slurm are given as --slurm=", name});
  else if (near) remedy = concat({": did you mean ", *near, "?"});
  return wrong(concat({dialect.tool, " has no flag ", quote(name), remedy}));
}

/// One flag of a command line: its index in the table, and the value in the same word.
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
  if (dialect.argparse || dialect.prefixes) {
    const auto spellings = abbreviated(table, name);
    if (spellings.size() == 1) {
      return Match{spellings.front().flag, std::string(spellings.front().name),
                   equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1))};
    }
    if (spellings.size() > 1) {
      return wrong(concat({quote(name), " can mean ", spellings[0].name, " or ", spellings[1].name, ": write it out"}));
    }
  }
  if (dialect.attached && word.size() > 2 && word[1] != '-') {
    const auto flag = find_flag(table, std::string_view(word).substr(0, 2));
    if (flag && table[*flag].values == 1) return Match{*flag, word.substr(0, 2), word.substr(2)};
  }
  return unknown_flag(dialect, table, name);
}

/// Checks a flag against its type and the flags before it, as argparse does.
Result<void> check_given(std::span<const Flag> table, const std::vector<GivenFlag>& before, GivenFlag& given) {
  const Flag& flag = table[given.flag];
  for (std::string& value : given.values) {
    auto read = read_python_value(flag.type, given.name, value);
    if (!read) return read.error();
    value = std::move(*read);
  }
  for (const GivenFlag& other : before) {
    if (flag.group.empty() || other.flag == given.flag || table[other.flag].group != flag.group) continue;
    return wrong(concat({given.name, " and ", other.name, " cannot be combined: give one"}));
  }
  return {};
}

Result<void> check_ranges(std::span<const Flag> table, const std::vector<GivenFlag>& flags) {
  for (const GivenFlag& given : flags) {
    for (const std::string& value : given.values) {
      if (auto status = check_python_range(table[given.flag].type, given.name, value); !status) return status;
    }
  }
  return {};
}

/// If a flag is given again, the last one counts.
void keep_the_last(std::span<const Flag> table, std::vector<GivenFlag>& flags) {
  std::vector<GivenFlag> kept;
  kept.reserve(flags.size());
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const auto rest = std::span(flags).subspan(i + 1);
    const bool again = std::ranges::find(rest, flags[i].flag, &GivenFlag::flag) != rest.end();
    if (!again || table[flags[i].flag].repeats) kept.push_back(std::move(flags[i]));
  }
  flags = std::move(kept);
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

Result<Reading> read_flags(const Dialect& dialect, std::span<const Flag> table, const std::vector<std::string>& words) {
  Reading reading;
  std::size_t at = 0;
  const auto is_flag = [&](const std::string& word) {
    if (dialect.argparse) return looks_like_flag(table, word);
    return word.starts_with('-') && word != "-";
  };
  for (; at < words.size() && is_flag(words[at]); ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    auto match = match_word(dialect, table, words[at]);
    if (!match) return match.error();
    const Flag& flag = table[match->flag];
    GivenFlag given{match->flag, std::move(match->name), {}};
    if (match->value && flag.values == 0 && flag.handling != FlagHandling::refused && !flag.takes_equals)
      return wrong(concat({given.name, " takes no value"}));
    if (match->value) given.values.push_back(std::move(*match->value));
    while (given.values.size() < flag.values) {
      if (++at >= words.size()) return wrong(concat({given.name, " needs a value"}));
      // What follows an empty variable in a script: --rdzv-id $ID --nnodes 2
      if (dialect.argparse && !is_our_own(given.name) && looks_like_flag(table, words[at])) {
        return wrong(concat({given.name, " needs a value, and ", quote(words[at]), " is a flag: write ", given.name,
                             "=VALUE if it is meant"}));
      }
      given.values.push_back(words[at]);
    }
    if (auto status = check_given(table, reading.flags, given); !status) return status.error();
    reading.flags.push_back(std::move(given));
  }
  if (dialect.argparse) keep_the_last(table, reading.flags);
  if (auto status = check_ranges(table, reading.flags); !status) return status.error();
  reading.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return reading;
}

Error invalid_value(const GivenFlag& given, std::string_view remedy) {
  return {Errc::invalid_argument, concat({"invalid value ", quote(given.value()), " for ", given.name, ": ", remedy})};
}

Result<std::uint32_t> number_of(const GivenFlag& given, std::uint32_t low, std::uint32_t high) {
  const auto number = text::to_number(text::trim(given.value()), high);
  if (number && *number >= low) return static_cast<std::uint32_t>(*number);
  return invalid_value(given, concat({"use a whole number from ", std::to_string(low), " to ", std::to_string(high)}));
}

}  // namespace amldist::launchers
