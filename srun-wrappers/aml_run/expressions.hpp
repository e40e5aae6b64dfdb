// ${{inputs.x}}, ${{outputs.y}} and ${{search_space.z}} in a job's texts. Values are put in as text, in one pass, by
// nothing that is a shell, as Azure ML does it: what a value makes of the command is what bash makes of the finished
// text. Pure, thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

/// The value of an expression.
struct Replacement {
  enum class Form {
    text,       ///< a literal, which may hold several words
    path,       ///< a file or a folder, which is meant as one word
    run_time,   ///< a path that is known when the job runs; `text` is how it begins, for warnings
    late_text,  ///< a literal that is known when the job runs; `text` is one that it may be
  };
  Form form = Form::text;
  std::string text;
  std::string variable = {};  ///< of the script, which holds what is known when the job runs
};

/// A part of a text: an expression's name, or what stands between two of them.
struct TemplatePiece {
  bool is_expression;
  std::string_view text;  ///< of an expression: its name, trimmed
};

/// Finds the value of an expression such as "inputs.epochs", or says why it has no value (the sentence without a
/// place).
using Lookup = std::function<Result<Replacement>(std::string_view expression)>;

/// The pieces of `text`, in order. Errors: an expression without an end.
[[nodiscard]] Result<std::vector<TemplatePiece>> read_template(std::string_view text);

/// Values by expression name.
using Values = std::map<std::string, std::string, std::less<>>;

/// The finished text. `literally`: a value becomes one word of bash, whatever characters it has. Errors: an expression
/// without a value; with `literally` a value with characters that bash acts on, at a place where this program cannot
/// tell how bash reads it (behind a here-document, `$'`, a backtick, or `$(` or `${` in quotes).
[[nodiscard]] Result<std::string> fill_in(std::string_view text, const Values& values, bool literally);

/// What bash would do with a value at its place, as a clause ("bash splits it at blanks"); empty: nothing. `before` and
/// `after` are the characters beside the expression, '\0' at an end: a value that stands alone in quotes is acted on
/// less.
[[nodiscard]] std::string what_bash_does(const Replacement& value, char before, char after);

}  // namespace amldist::run
