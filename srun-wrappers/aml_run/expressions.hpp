// ${{inputs.x}}, ${{outputs.y}} and ${{search_space.z}} in a job's texts. Values are inserted as text, in one pass,
// without a shell, as Azure ML does: bash then interprets the finished text. Pure, thread-safe.
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
    text,       ///< a literal, which may contain several words
    path,       ///< a file or a folder, meant as one word
    run_time,   ///< a path that is known when the job runs; `text` is its beginning, for warnings
    late_text,  ///< a literal that is known when the job runs; `text` is one possible value
  };
  Form form = Form::text;
  std::string text;
  std::string variable = {};  ///< of the script, which contains what is known when the job runs
};

/// A part of a text: an expression's name, or the text between two expressions.
struct TemplatePiece {
  bool is_expression;
  std::string_view text;  ///< for an expression: its name, trimmed
};

/// Finds the value of an expression such as "inputs.epochs", or says why it has no value (the sentence without a
/// place).
using Lookup = std::function<Result<Replacement>(std::string_view expression)>;

/// The pieces of `text`, in order. Errors: an expression without an end.
[[nodiscard]] Result<std::vector<TemplatePiece>> read_template(std::string_view text);

/// Values by expression name.
using Values = std::map<std::string, std::string, std::less<>>;

/// The finished text. `literally`: a value becomes one word of bash, whatever characters it has. Errors: an expression
/// without a value; with `literally` a value with characters that are special to bash, at a place where this program
/// cannot tell how bash reads it (after a here-document, `$'`, a backtick, or `$(` or `${` in quotes).
[[nodiscard]] Result<std::string> fill_in(std::string_view text, const Values& values, bool literally);

/// What bash would do with a value at its place, as a clause ("bash splits it at blanks"); empty if nothing. `before`
/// and `after` are the characters beside the expression, '\0' at an end: a value that is alone in quotes is affected
/// less.
[[nodiscard]] std::string what_bash_does(const Replacement& value, char before, char after);

}  // namespace amldist::run
