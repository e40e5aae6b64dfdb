// Values of flags as Python's argparse reads them: int() and float() of Python, and choices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::launchers {

/// The result of int() on a text: blanks around, a sign, single underscores between digits. nullopt if it is not a
/// number, or does not fit 64 bits.
[[nodiscard]] std::optional<std::int64_t> python_integer(std::string_view text);

/// The result of float() on a text.
[[nodiscard]] std::optional<double> python_number(std::string_view text);

/// Checks a value against a flag's type (Flag::type) and returns it as it is passed on: whole numbers as Python prints
/// them. Errors: invalid_argument with what `name` needs.
[[nodiscard]] Result<std::string> read_python_value(std::string_view type, std::string_view name,
                                                    const std::string& value);

/// Checks a value that read_python_value() accepted against the range of its type. The real tools do so after argparse:
/// only for the last value of a flag. Errors: invalid_argument, as read_python_value().
[[nodiscard]] Result<void> check_python_range(std::string_view type, std::string_view name, const std::string& value);

}  // namespace amldist::launchers
