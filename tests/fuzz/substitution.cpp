// ${{...}} in a command: values go in as text, or with --literal as one word each. The first line of an input is the
// value, the rest is the command.
#include "aml_run/expressions.hpp"

#include <algorithm>
#include <optional>

#include "fuzz.hpp"

namespace amldist::fuzz::substitution {

using run::Values;

const std::string_view separator = " ${{inputs.x}} ";

namespace {

/// The one word that bash reads, by a reader of its own that knows quotes and backslashes and nothing else. nullopt: it
/// is not one word, or bash would act on it.
std::optional<std::string> word_of(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '$' && text.substr(at + 1, 1) == "'") {  // with \' and \\ only: no other escape is needed for these values
      for (at += 2; at < text.size() && text[at] != '\''; ++at) out += text[at] == '\\' ? text[++at] : text[at];
      if (at >= text.size()) return std::nullopt;
    } else if (c == '\'') {
      const auto end = text.find('\'', at + 1);
      if (end == std::string_view::npos) return std::nullopt;
      out += text.substr(at + 1, end - at - 1);
      at = end;
    } else if (c == '\\') {
      if (++at == text.size() || text[at] == '\n') return std::nullopt;
      out += text[at];
    } else if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        const bool escapes = text[at] == '\\' && at + 1 < text.size() &&
                             std::string_view("\"\\$`").find(text[at + 1]) != std::string_view::npos;
        if (text[at] == '$' || text[at] == '`') return std::nullopt;
        if (escapes) ++at;
        out += text[at];
      }
      if (at == text.size()) return std::nullopt;
    } else if (std::string_view(" \t\n;&|<>()$`*?[#~{}!=").find(c) != std::string_view::npos && c != '=') {
      return std::nullopt;
    } else {
      out += c;
    }
  }
  return text.empty() ? std::nullopt : std::optional(out);
}

std::string plainly(std::string_view command, std::string_view value) {
  std::string out;
  const auto pieces = run::read_template(command);
  for (const auto& piece : *pieces) out += piece.is_expression ? value : piece.text;
  return out;
}

}  // namespace

void try_input(std::string_view input) {
  Input given(input);
  const std::string value(given.line());
  const std::string_view command = given.rest();
  if (value.find('\0') != std::string::npos) return;  // no value has one: a sentence says so before
  const auto pieces = run::read_template(command);
  if (!pieces) {
    require(!pieces.error().message.empty(), "a refusal says why");
    return;
  }
  Values values;
  for (const auto& piece : *pieces) {
    require(piece.is_expression || !piece.text.empty(), "no piece of text is empty");
    if (piece.is_expression) values.insert_or_assign(std::string(piece.text), value);
  }
  const auto filled = run::fill_in(command, values, false);
  require(static_cast<bool>(filled) && *filled == plainly(command, value), "a value is put in as text, in one pass");
  const auto literal = run::fill_in(command, values, true);
  if (values.empty())
    require(static_cast<bool>(literal) && *literal == command, "a command without expressions stays as it is");
  // Others need more escapes than the reader above knows; test_quoting.py gives them to bash.
  if (std::ranges::any_of(value, [](char c) { return c < ' ' || c > '~'; })) return;
  const Values one = {{"inputs.x", value}};
  const auto bare = run::fill_in("echo ${{inputs.x}} end", one, true);
  require(static_cast<bool>(bare) && bare->starts_with("echo ") && bare->ends_with(" end"), "a bare place is certain");
  require(word_of(std::string_view(*bare).substr(5, bare->size() - 9)) == value, "a literal value is one word: itself");
  for (const std::string_view quote : {"'", "\""}) {
    const std::string around = std::string("echo ").append(quote).append("${{inputs.x}}").append(quote);
    const auto quoted = run::fill_in(around, one, true);
    require(static_cast<bool>(quoted) && word_of(std::string_view(*quoted).substr(5)) == value, "so it is in quotes");
  }
  static_cast<void>(run::what_bash_does({run::Replacement::Form::text, value}, '\0', '\0'));
}

}  // namespace amldist::fuzz::substitution
