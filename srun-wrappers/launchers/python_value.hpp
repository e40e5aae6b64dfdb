// Values of flags as Python's argparse takes them: int() and float() of Python, and choices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::launchers {

/// What int() makes of a text: blanks around, a sign, single underscores between digits. nullopt: it is not a number,
/// or not one of 64 bits.
[[nodiscard]] std::optional<std::int64_t> python_integer(std::string_view text);

/// What float() makes of a text.
[[nodiscard]] std::optional<double> python_number(std::string_view text);

/// Holds a value against a flag's type (Flag::type) and returns it as it is handed on: whole numbers as Python prints
/// them. Errors: invalid_argument with what `name` needs.
[[nodiscard]] Result<std::string> read_python_value(std::string_view type, std::string_view name,
                                                    const std::string& value);

/// Holds a value that read_python_value() took against the range of its type. The real tools do so behind argparse:
/// only with the last value of a flag. Errors: invalid_argument, as read_python_value().
[[nodiscard]] Result<void> check_python_range(std::string_view type, std::string_view name, const std::string& value);

}  // namespace amldist::launchers
