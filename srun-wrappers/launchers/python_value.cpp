#include "launchers/python_value.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/text/text.hpp"

namespace amldist::launchers {
namespace {

using text::concat;
using text::quote;

/// Digits as Python writes them, with single underscores between. Returns the number of their characters.
std::size_t digits_of(std::string_view text) {
  std::size_t at = 0;
  const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  while (is_digit(at) || (at > 0 && at < text.size() && text[at] == '_' && is_digit(at + 1))) ++at;
  return at;
}

std::string_view without_sign(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

bool is_exponent(std::string_view text) {
  if (!text.starts_with('e') && !text.starts_with('E')) return text.empty();
  text = without_sign(text.substr(1));
  return !text.empty() && digits_of(text) == text.size();
}

bool is_number(std::string_view text) {
  text = without_sign(text);
  const std::string lower = text::to_lower(text);
  if (lower == "inf" || lower == "infinity" || lower == "nan") return true;
  const std::size_t whole = digits_of(text);
  text.remove_prefix(whole);
  std::size_t fraction = 0;
  if (text.starts_with('.')) {
    fraction = digits_of(text.substr(1));
    text.remove_prefix(1 + fraction);
  }
  return whole + fraction > 0 && is_exponent(text);
}

Error wrong(std::string_view name, std::string_view kind, std::string_view value) {
  return {Errc::invalid_argument, concat({name, " needs ", kind, ", not ", quote(value)})};
}

std::string_view kind_of_number(std::string_view type) {
  if (type == "share") return "a number from 0 to 1";
  if (type.starts_with("int")) return type.ends_with('+') ? "a whole number, 0 or more" : "a whole number";
  return type.ends_with('+') ? "a number, 0 or more" : "a number";
}

}  // namespace

std::optional<std::int64_t> python_integer(std::string_view text) {
  text = text::trim(text);
  const bool negative = text.starts_with('-');
  text = without_sign(text);
  if (text.empty() || digits_of(text) != text.size()) return std::nullopt;
  const auto number = text::to_number(without_underscores(text), std::numeric_limits<std::int64_t>::max());
  if (!number) return std::nullopt;
  const auto size = static_cast<std::int64_t>(*number);
  return negative ? -size : size;
}

std::optional<double> python_number(std::string_view text) {
  text = text::trim(text);
  if (!is_number(text)) return std::nullopt;
  return std::strtod(without_underscores(text).c_str(), nullptr);
}

Result<std::string> read_python_value(std::string_view type, std::string_view name, const std::string& value) {
  if (type.empty()) return value;
  if (type.starts_with("int")) {
    const auto number = python_integer(value);
    if (!number) return wrong(name, kind_of_number(type), value);
    return std::to_string(*number);
  }
  if (type.starts_with("float") || type == "share") {
    if (!python_number(value)) return wrong(name, kind_of_number(type), value);
    return std::string(text::trim(value));
  }
  const auto choices = text::split(type, '|');
  if (std::ranges::find(choices, value) == choices.end())
    return wrong(name, concat({"one of ", text::join(choices)}), value);
  return value;
}

Result<void> check_python_range(std::string_view type, std::string_view name, const std::string& value) {
  const double most = type == "share" ? 1 : std::numeric_limits<double>::infinity();
  if (type != "share" && !type.ends_with('+')) return {};
  const auto number = python_number(value);
  if (!number || *number < 0 || *number > most) return wrong(name, kind_of_number(type), value);
  return {};
}

}  // namespace amldist::launchers
