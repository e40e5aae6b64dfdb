// Quoting for the two readers of what the commands write: bash, and sbatch for its #SBATCH lines. Pure, thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::shell {

/// One word of bash that is exactly `text`, whatever its bytes (no NUL): bare if that is safe, else in single quotes,
/// else as $'...' (control characters, because sbatch refuses \r\n; bytes that are not UTF-8; characters that
/// shellcheck would question).
[[nodiscard]] std::string quote(std::string_view text);

/// A path for a message: whole, in quotes. The caller that prints it makes control characters visible.
[[nodiscard]] std::string quote_path(std::string_view path);

/// Words of one command, quoted, with blanks between.
[[nodiscard]] std::string join(std::span<const std::string> words);

/// Whether quote() leaves a `$` or a backtick in single quotes, which shellcheck would question (SC2016).
[[nodiscard]] bool keeps_dollar(std::string_view text) noexcept;

/// A value as sbatch reads it after `#SBATCH --name=`: bare or in double quotes. Newlines and other control characters
/// become blanks, because an #SBATCH line cannot express them.
[[nodiscard]] std::string quote_directive(std::string_view value);

/// A folder in a file name of sbatch (--output and its like), where % begins a pattern.
[[nodiscard]] std::string without_patterns(std::string_view path);

/// Splits a line into words as a shell would (blanks, quotes, backslashes) without expanding anything.
/// Errors: invalid_argument, a quote that is not closed.
[[nodiscard]] Result<std::vector<std::string>> split_words(std::string_view line);

/// Whether `text` can name a variable: letters, digits and _, not a digit first.
[[nodiscard]] bool is_name(std::string_view text) noexcept;

/// Length of the beginning of `text` that is UTF-8 (no overlong forms, no surrogates): all of it, if it is.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;
[[nodiscard]] inline bool is_utf8(std::string_view text) noexcept { return utf8_length(text) == text.size(); }

}  // namespace amldist::shell
