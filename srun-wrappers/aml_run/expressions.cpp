#include "aml_run/expressions.hpp"

#include <optional>

#include "core/text.hpp"
#include "shared/shell.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// How bash reads the next character.
enum class Quoting { bare, single_quotes, double_quotes };

struct Expression {
  std::string_view name;  ///< trimmed
  std::size_t length;
};

Result<Expression> expression_at(std::string_view text, std::size_t at) {
  const auto end = text.find("}}", at);
  if (end == std::string_view::npos) {
    return Error{Errc::invalid_argument,
                 concat({"the expression ", text::quote(text.substr(at)), " is not closed: close it with }}"})};
  }
  return Expression{text::trim(text.substr(at + 3, end - at - 3)), end + 2 - at};
}

/// Follows bash's quoting over one character; returns how many characters were read.
std::size_t follow(std::string_view text, std::size_t at, Quoting& quoting) {
  const char c = text[at];
  if (c == '\\' && quoting != Quoting::single_quotes) return at + 1 < text.size() ? 2 : 1;
  if (c == '\'' && quoting != Quoting::double_quotes) {
    quoting = quoting == Quoting::bare ? Quoting::single_quotes : Quoting::bare;
  } else if (c == '"' && quoting != Quoting::single_quotes) {
    quoting = quoting == Quoting::bare ? Quoting::double_quotes : Quoting::bare;
  }
  return 1;
}

std::string escape(std::string_view value, std::string_view marks) {
  std::string out;
  for (const char c : value) {
    if (marks.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string quote_word(std::string_view value, Quoting quoting) {
  if (quoting == Quoting::bare) return shell::quote(value);
  if (quoting == Quoting::double_quotes) return escape(value, "\"\\$`");
  std::string out;
  for (const char c : value) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return out;
}

std::string quote_variable(std::string_view name, Quoting quoting) {
  if (quoting == Quoting::bare) return concat({"\"$", name, "\""});
  if (quoting == Quoting::double_quotes) return concat({"${", name, "}"});
  return concat({"'\"$", name, "\"'"});
}

std::string write(const Replacement& replacement, Quoting quoting) {
  switch (replacement.form) {
    case Replacement::Form::word:
      return quote_word(replacement.text, quoting);
    case Replacement::Form::variable:
      return quote_variable(replacement.text, quoting);
    case Replacement::Form::text:
      break;
  }
  return replacement.text;
}

}  // namespace

Result<std::string> replace_in_command(std::string_view command, const Lookup& lookup) {
  std::string out;
  Quoting quoting = Quoting::bare;
  std::size_t at = 0;
  while (at < command.size()) {
    if (!command.substr(at).starts_with("${{")) {
      const std::size_t length = follow(command, at, quoting);
      out += command.substr(at, length);
      at += length;
      continue;
    }
    const auto expression = expression_at(command, at);
    if (!expression) return expression.error();
    const auto replacement = lookup(expression->name);
    if (!replacement) return replacement.error();
    out += write(*replacement, quoting);
    at += expression->length;
  }
  return out;
}

Result<std::string> replace_in_text(std::string_view text, const Lookup& lookup) {
  std::string out;
  for (;;) {
    const auto at = text.find("${{");
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    const auto expression = expression_at(text, at);
    if (!expression) return expression.error();
    const auto replacement = lookup(expression->name);
    if (!replacement) return replacement.error();
    if (replacement->form == Replacement::Form::variable) {
      return Error{Errc::invalid_argument, concat({text::quote(expression->name),
                                                   " can stand only in command: the folder is named after the job"})};
    }
    out += replacement->text;
    text.remove_prefix(at + expression->length);
  }
}

}  // namespace amldist::run
