#include "base/text/text.hpp"

#include <algorithm>
#include <array>

#include "base/text/hex.hpp"
#include "base/text/printable.hpp"

namespace amldist::text {
namespace {

constexpr std::string_view blanks = " \t";

constexpr std::size_t longest_quote = 40;
constexpr std::size_t longest_suggestible_word = 40;

/// Optimal string alignment distance: insert, delete, replace, or swap two neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

void append_visible(std::string& out, unsigned char byte) {
  if (byte >= 0x20 && byte < 0x7f) {
    out += static_cast<char>(byte);
    return;
  }
  out += "\\x";
  append_hex(out, byte);
}

}  // namespace

std::optional<std::uint64_t> to_number(std::string_view digits, std::uint64_t max) noexcept {
  if (digits.empty()) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (number > (max - digit) / 10 || digit > max) return std::nullopt;
    number = number * 10 + digit;
  }
  return number;
}

std::string number_problem(std::string_view digits, std::uint64_t max) {
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? concat({"is out of range (at most ", std::to_string(max), ")"}) : "is not a number";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const auto end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (auto begin = text.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(blanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(blanks, end);
  }
  return words;
}

std::string_view trim(std::string_view text) noexcept {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string printable(std::string_view input, std::size_t most) {
  std::string out;
  for (const char c : input) {
    std::string visible;
    append_visible(visible, static_cast<unsigned char>(c));
    if (out.size() + visible.size() > most) return out + "...";
    out += visible;
  }
  return out;
}

std::string quote(std::string_view input) {
  std::string out = "'";
  for (const char c : input.substr(0, longest_quote)) append_visible(out, static_cast<unsigned char>(c));
  out += input.size() > longest_quote ? "...'" : "'";
  return out;
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > longest_suggestible_word) return std::nullopt;
  const std::string lower = to_lower(word);
  std::optional<std::string_view> best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(lower, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string join(std::span<const std::string_view> words, std::string_view separator) {
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out += separator;
    out += word;
  }
  return out;
}

std::string concat(std::initializer_list<std::string_view> parts) {
  std::size_t length = 0;
  for (const std::string_view part : parts) length += part.size();
  std::string out;
  out.reserve(length);
  for (const std::string_view part : parts) out += part;
  return out;
}

std::string count(std::uint64_t number, std::string_view noun) {
  return concat({std::to_string(number), " ", noun, number == 1 ? "" : noun.ends_with('s') ? "es" : "s"});
}

}  // namespace amldist::text
