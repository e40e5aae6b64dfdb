// Environment variables that configure a part of the product. Each wing declares its own, as a table in its
// settings.hpp and settings.cpp; docs/environment-reference.md shows all of them, and tests/style/test_settings.py
// compares the two.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"

namespace amldist {

/// One row of a table, in Markdown.
struct SettingDescription {
  std::string_view name;
  std::string_view reader;         ///< the call or command that reads it
  std::string_view values;         ///< valid values, with the unit
  std::string_view default_value;  ///< if the variable is unset or empty
  std::string_view meaning;
};

namespace setting {

/// The value of one variable; nullopt if it is not set or empty.
[[nodiscard]] std::optional<std::string> value_of(const EnvironmentReader& environment, std::string_view name);

/// invalid_argument: "NAME='value': use tcp, pmix, slurm or mpi".
[[nodiscard]] Error invalid_word(std::string_view name, std::string_view value,
                                 std::span<const std::string_view> words);

/// A word and its value.
template <typename Value>
struct Choice {
  std::string_view word;
  Value value;
};

/// Sets `out` to the value that the variable's word means. A variable that is unset or empty changes nothing.
/// Errors: invalid_argument, with the variable, its value and the valid words.
template <typename Value, std::size_t N>
[[nodiscard]] Result<void> read_word(const EnvironmentReader& environment, std::string_view name, Value& out,
                                     const Choice<Value> (&choices)[N]) {
  const auto given = value_of(environment, name);
  if (!given) return {};
  std::array<std::string_view, N> words;
  for (std::size_t i = 0; i < N; ++i) {
    words[i] = choices[i].word;
    if (*given != choices[i].word) continue;
    out = choices[i].value;
    return {};
  }
  return invalid_word(name, *given, words);
}

}  // namespace setting
}  // namespace amldist
