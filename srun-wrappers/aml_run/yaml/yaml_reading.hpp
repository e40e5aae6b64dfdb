// The meaning of a scalar without quotes. Azure ML reads its files with PyYAML, which implements YAML 1.1: 010 is 8,
// 1:30 is 90, yes is true, 1e-3 is a text. So does aml-run, and a value becomes the text that Python's str() makes of
// it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "aml_run/yaml/yaml_tree.hpp"

namespace amldist::run {

struct YamlReading {
  enum class Kind { text, truth, whole, real };
  Kind kind = Kind::text;
  std::string text;  ///< as str() writes it: "True", "8", "0.0001"; a text unchanged
};

/// Reads one scalar without quotes. What YAML takes for a date, an infinity or no number is a text here, and so are
/// whole numbers in other bases than ten that need more than 64 bits.
[[nodiscard]] YamlReading read_plain(std::string_view text);

/// Writes the numbers and truth values of a job file as str() does. Values that are texts by their meaning (names,
/// tags, the command) stay as they are written.
void read_numbers(YamlValue& root);

/// A finite number, if the whole text is one.
[[nodiscard]] std::optional<double> finite_number(const std::string& text);

}  // namespace amldist::run
