// Text helpers shared by the grammars: strict numbers, splitting, suggestions, quoting of untrusted input.
// Everything here is pure and thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::text {

/// Decimal digits only (no sign, no space, no empty text), at most `max`. nullopt for anything else.
[[nodiscard]] std::optional<std::uint64_t> to_number(std::string_view digits, std::uint64_t max) noexcept;

/// Why to_number() refused `digits`, to be written after its name: "is not a number" or "is out of range (at most
/// 65535)".
[[nodiscard]] std::string number_problem(std::string_view digits, std::uint64_t max);

/// Pieces between separators; "" gives one empty piece, as "a," gives two.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The words between blanks and tabs; no word is empty.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);

/// Text without leading and trailing blanks and tabs.
[[nodiscard]] std::string_view trim(std::string_view text) noexcept;

/// Lower case, ASCII only and independent of the locale.
[[nodiscard]] std::string to_lower(std::string_view text);

/// `input` in single quotes, safe for one line of a terminal: control and non-ASCII bytes become \xNN, and everything
/// after 40 characters becomes "...".
[[nodiscard]] std::string quote(std::string_view input);

/// The candidate closest to `word` by edit distance (with transpositions), if it is close enough to be a typo.
[[nodiscard]] std::optional<std::string_view> nearest(std::string_view word,
                                                      std::span<const std::string_view> candidates);

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string_view> words, std::string_view separator = ", ");

/// Concatenation without iostreams.
[[nodiscard]] std::string concat(std::initializer_list<std::string_view> parts);

/// "1 task", "4 tasks".
[[nodiscard]] std::string count(std::uint64_t number, std::string_view noun);

}  // namespace amldist::text
