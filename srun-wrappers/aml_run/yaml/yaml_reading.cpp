#include "aml_run/yaml/yaml_reading.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;
using ReadKind = YamlReading::Kind;
using YamlKind = YamlValue::Kind;

constexpr std::string_view digits = "0123456789";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool consists_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

std::string_view without_sign(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text;
}

std::optional<bool> truth_of(std::string_view text) {
  constexpr std::array<std::string_view, 3> yes = {"yes", "true", "on"};
  constexpr std::array<std::string_view, 3> no = {"no", "false", "off"};
  const std::string lower = text::to_lower(text);
  // "Yes" and "YES", but not "yES".
  const bool one_case = text == lower || text.substr(1) == std::string_view(lower).substr(1) ||
                        std::ranges::none_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
  if (text.empty() || !one_case) return std::nullopt;
  if (std::ranges::find(yes, lower) != yes.end()) return true;
  if (std::ranges::find(no, lower) != no.end()) return false;
  return std::nullopt;
}

std::optional<std::uint64_t> number_in_base(std::string_view text, int base) {
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return wrong == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The parts after the first of "190:20:30": two digits at most, less than 60.
bool are_sixtieths(const std::vector<std::string_view>& parts) {
  return std::all_of(parts.begin() + 1, parts.end(), [](std::string_view part) {
    const bool fits = part.size() == 1 || (part.size() == 2 && part.front() >= '0' && part.front() <= '5');
    return fits && consists_of(part, digits);
  });
}

/// The digits of a whole number in base ten; empty if the text is not one.
std::string whole_number(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return {};
  const std::string_view prefix = text.substr(0, 2);
  std::optional<std::uint64_t> value;
  if (prefix == "0b" && consists_of(text.substr(2), "01_")) {
    value = number_in_base(without_underscores(text.substr(2)), 2);
  } else if (prefix == "0x" && consists_of(text.substr(2), "0123456789abcdefABCDEF_")) {
    value = number_in_base(without_underscores(text.substr(2)), 16);
  } else if (text.front() == '0' && consists_of(text, "01234567_")) {
    value = number_in_base(without_underscores(text), 8);
  } else if (text.front() != '0' && consists_of(text, "0123456789_")) {
    return without_underscores(text);
  } else if (text.front() != '0' && text.find(':') != std::string_view::npos) {
    const auto parts = text::split(text, ':');
    value = consists_of(parts.front(), "0123456789_") && are_sixtieths(parts)
                ? number_in_base(without_underscores(parts.front()), 10)
                : std::nullopt;
    for (std::size_t i = 1; i < parts.size() && value; ++i) {
      if (*value > UINT64_MAX / 60 - 1) return {};
      value = *value * 60 + *number_in_base(parts[i], 10);
    }
  }
  return value ? std::to_string(*value) : std::string();
}

/// As Python's repr(): the shortest digits that read back as the same number, with an exponent below 1e-4 and from
/// 1e16.
std::string python_float(double number) {
  std::array<char, 64> out{};
  const double size = std::abs(number);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(out.data(), out.data() + out.size(), number, format);
  std::string text(out.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// "e+10", with a sign: PyYAML takes 1.5e5 for a text.
bool is_exponent(std::string_view text) {
  if (text.empty()) return true;
  const bool begins = text.size() > 2 && (text[0] == 'e' || text[0] == 'E') && (text[1] == '+' || text[1] == '-');
  return begins && consists_of(text.substr(2), digits);
}

std::optional<double> real_number(std::string_view text) {
  const auto point = text.find('.');
  if (point == std::string_view::npos) return std::nullopt;
  const std::string_view whole = without_sign(text.substr(0, point));
  const std::string_view rest = text.substr(point + 1);
  const auto exponent = rest.find_first_of("eE");
  const std::string_view fraction = rest.substr(0, exponent);
  if (!consists_of(fraction, "0123456789_")) return std::nullopt;
  const auto parts = text::split(whole, ':');
  const bool sixtieths = parts.size() > 1;
  if (sixtieths) {
    if (exponent != std::string_view::npos || !are_sixtieths(parts)) return std::nullopt;
  } else if (exponent != std::string_view::npos && !is_exponent(rest.substr(exponent))) {
    return std::nullopt;
  }
  const bool begins = !whole.empty() && is_digit(whole.front()) && consists_of(parts.front(), "0123456789_");
  const bool point_first = point == 0 && !fraction.empty() && is_digit(fraction.front());
  if (!begins && !point_first) return std::nullopt;
  const double sign = text.starts_with('-') ? -1.0 : 1.0;
  double value = 0;
  // Python adds from the last part to the first: the same order gives the same last bit.
  double unit = 1;
  const std::string last = concat({parts.back(), ".", rest});
  value += std::strtod(without_underscores(last).c_str(), nullptr);
  for (std::size_t i = parts.size() - 1; i > 0; --i) {
    unit *= 60;
    value += unit * std::strtod(without_underscores(parts[i - 1]).c_str(), nullptr);
  }
  return std::isfinite(value) ? std::optional(sign * value) : std::nullopt;
}

/// Keys whose values are texts whatever they look like.
bool holds_text(std::string_view key) {
  constexpr std::array<std::string_view, 9> keys = {
      "name", "display_name", "experiment_name", "description", "command", "version", "tags", "properties", "path"};
  return std::ranges::find(keys, key) != keys.end();
}

void read_value(YamlValue& value) {
  if (value.kind == YamlKind::scalar && value.plain) {
    YamlReading reading = read_plain(value.text);
    if (reading.kind != ReadKind::text) value.text = std::move(reading.text);
  }
  for (YamlValue& item : value.items) read_value(item);
}

/// `named`: the map's keys are the user's own names.
void read_map(YamlValue& map, bool named) {
  constexpr std::array<std::string_view, 6> with_names = {"inputs",       "outputs", "environment_variables",
                                                          "search_space", "jobs",    "services"};
  for (YamlEntry& entry : map.entries) {
    if (!named && holds_text(entry.key)) continue;
    read_value(entry.value);
    const bool inner = std::ranges::find(with_names, entry.key) != with_names.end();
    read_map(entry.value, !named && inner);
    for (YamlValue& item : entry.value.items) read_map(item, false);
  }
}

}  // namespace

YamlReading read_plain(std::string_view text) {
  if (const auto truth = truth_of(text)) return {ReadKind::truth, *truth ? "True" : "False"};
  const bool negative = text.starts_with('-');
  if (const std::string number = whole_number(without_sign(text)); !number.empty()) {
    return {ReadKind::whole, concat({negative && number != "0" ? "-" : "", number})};
  }
  if (const auto number = real_number(text)) return {ReadKind::real, python_float(*number)};
  return {ReadKind::text, std::string(text)};
}

void read_numbers(YamlValue& root) { read_map(root, false); }

std::optional<double> finite_number(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool whole = !text.empty() && end == text.c_str() + text.size() && std::isfinite(number);
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace amldist::run
