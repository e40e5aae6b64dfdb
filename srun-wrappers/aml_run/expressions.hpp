// ${{inputs.x}} and ${{outputs.y}} in a job's command.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace amldist::run {

/// What stands for an expression.
struct Replacement {
  enum class Form {
    text,      ///< as it is, as on Azure ML: a literal may hold several words
    word,      ///< a path: one word, whatever characters it has
    variable,  ///< the name of a variable of the batch script, whose value is one word
  };
  Form form = Form::text;
  std::string text;
};

/// Says what stands for an expression such as "inputs.epochs", or why nothing does (the sentence without a place).
using Lookup = std::function<Result<Replacement>(std::string_view expression)>;

/// Replaces the expressions in a line for bash. Paths and variables are quoted as the place needs it: outside quotes,
/// in double quotes, in single quotes. Errors: what `lookup` says; an expression without an end.
[[nodiscard]] Result<std::string> replace_in_command(std::string_view command, const Lookup& lookup);

/// The same in a text that no shell reads (an environment variable). Outputs cannot stand there.
[[nodiscard]] Result<std::string> replace_in_text(std::string_view text, const Lookup& lookup);

}  // namespace amldist::run
