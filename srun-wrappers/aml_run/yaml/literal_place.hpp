// The context of a value in a bash command, as far as it can be determined with certainty, so that the value can be
// written as one word there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::run {

/// Follows the text of a command. Constructs in which bash's reading depends on more than quotes (a here-document,
/// `$'`, a backtick, `$(` or `${` in double quotes) make every later place uncertain; no guess is made there.
class LiteralPlace {
 public:
  /// Reads a part of the command.
  void follow(std::string_view part);

  /// `value` as one word, or as a part of one, at the present place. Errors: invalid_argument, the place is uncertain
  /// and the value has characters that are special to bash (the sentence without its subject).
  [[nodiscard]] Result<std::string> write(std::string_view value);

  /// The quote that encloses the present place, '\0' outside quotes; nullopt if the place is uncertain.
  [[nodiscard]] std::optional<char> quote() const noexcept;

 private:
  enum class Quoting { bare, single_quotes, double_quotes, comment, uncertain };

  std::size_t step(std::string_view part, std::size_t at);
  std::size_t step_bare(std::string_view part, std::size_t at);

  Quoting quoting_ = Quoting::bare;
  bool word_begins_ = true;  ///< the next character begins a word, where # begins a comment
  bool escaped_ = false;     ///< a backslash ended the last part
  bool behind_dollar_ = false;
};

}  // namespace amldist::run
