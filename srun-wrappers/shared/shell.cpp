#include "shared/shell.hpp"

#include <algorithm>
#include <array>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::shell {
namespace {

bool is_safe(char c) {
  constexpr std::string_view marks = "_@%+=:,./-";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         marks.find(c) != std::string_view::npos;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

/// Typographic quotes and dashes: shellcheck takes them for slips of a word processor.
bool has_typography(std::string_view text) {
  constexpr std::array<std::string_view, 6> marks = {"\xe2\x80\x98", "\xe2\x80\x99", "\xe2\x80\x9c",
                                                     "\xe2\x80\x9d", "\xe2\x80\x93", "\xc2\xa0"};
  return std::ranges::any_of(marks, [&](std::string_view mark) { return text.find(mark) != std::string_view::npos; });
}

bool needs_escapes(std::string_view text) {
  const bool control = std::ranges::any_of(text, [](char c) { return is_control(c) && c != '\n' && c != '\t'; });
  // 'a\' and 'a\'b' would be correct, but look like mistakes.
  return control || text.ends_with('\\') || text.find("\\'") != std::string_view::npos || has_typography(text) ||
         !is_utf8(text);
}

std::string with_escapes(std::string_view text) {
  std::string out = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == '\'') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (is_control(c) || byte >= 0x80) {
      out += "\\x";
      append_hex(out, byte);
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string in_single_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return out + "'";
}

/// Length of the UTF-8 sequence that begins with `lead`, and the range of its second byte; 0: no sequence does.
struct Sequence {
  std::size_t length;
  unsigned char low;
  unsigned char high;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0x80, 0xbf};
  if (lead >= 0xc2 && lead <= 0xdf) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};
  if (lead == 0xed) return {3, 0x80, 0x9f};
  if (lead >= 0xe1 && lead <= 0xef) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};
  if (lead >= 0xf1 && lead <= 0xf3) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

/// Reads one quoted piece or one escaped character at `at`; returns the position after it, npos if it is not closed.
std::size_t read_piece(std::string_view line, std::size_t at, std::string& word) {
  const char c = line[at];
  if (c == '\\') {
    if (at + 1 == line.size()) return std::string_view::npos;
    word += line[at + 1];
    return at + 2;
  }
  if (c == '\'') {
    const auto end = line.find('\'', at + 1);
    if (end != std::string_view::npos) word += line.substr(at + 1, end - at - 1);
    return end == std::string_view::npos ? end : end + 1;
  }
  if (c != '"') {
    word += c;
    return at + 1;
  }
  for (++at; at < line.size() && line[at] != '"'; ++at) {
    constexpr std::string_view escapable = "\"\\$`";
    if (line[at] == '\\' && at + 1 < line.size() && escapable.find(line[at + 1]) != std::string_view::npos) ++at;
    word += line[at];
  }
  return at < line.size() ? at + 1 : std::string_view::npos;
}

}  // namespace

std::string quote(std::string_view text) {
  if (text.empty()) return "''";
  if (std::ranges::all_of(text, is_safe)) return std::string(text);
  return needs_escapes(text) ? with_escapes(text) : in_single_quotes(text);
}

std::string quote_path(std::string_view path) { return text::concat({"'", path, "'"}); }

std::string join(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += quote(word);
  }
  return out;
}

bool keeps_dollar(std::string_view text) noexcept { return text.find_first_of("$`") != std::string_view::npos; }

std::string without_patterns(std::string_view path) {
  std::string out;
  for (const char c : path) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

std::string quote_directive(std::string_view value) {
  std::string clean(value);
  std::ranges::replace_if(clean, is_control, ' ');
  if (!clean.empty() && std::ranges::all_of(clean, [](char c) { return is_safe(c) || c == '[' || c == ']'; })) {
    return clean;
  }
  std::string out = "\"";
  for (const char c : clean) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  std::size_t at = 0;
  for (;;) {
    at = line.find_first_not_of(" \t\n", at);
    if (at == std::string_view::npos) return words;
    std::string word;
    while (at < line.size() && std::string_view(" \t\n").find(line[at]) == std::string_view::npos) {
      at = read_piece(line, at, word);
      if (at == std::string_view::npos) {
        return Error{Errc::invalid_argument,
                     text::concat({"a quote or a backslash in ", text::quote(line), " is not closed: close it"})};
      }
    }
    words.push_back(std::move(word));
  }
}

bool is_name(std::string_view text) noexcept {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && is_letter(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::size_t utf8_length(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const Sequence sequence = sequence_of(static_cast<unsigned char>(text[at]));
    if (sequence.length == 0 || at + sequence.length > text.size()) return at;
    for (std::size_t i = 1; i < sequence.length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      const unsigned char low = i == 1 ? sequence.low : 0x80;
      const unsigned char high = i == 1 ? sequence.high : 0xbf;
      if (byte < low || byte > high) return at;
    }
    at += sequence.length;
  }
  return at;
}

}  // namespace amldist::shell
