#include "aml_run/expressions.hpp"

#include <algorithm>

#include "aml_run/yaml/literal_place.hpp"
#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;

constexpr std::string_view opening = "${{";
constexpr std::string_view closing = "}}";

/// The characters of `value` that are special to bash outside of quotes.
std::string active_characters(std::string_view value, std::string_view active) {
  std::string out;
  for (const char c : value) {
    if (active.find(c) != std::string_view::npos && out.find(c) == std::string::npos) out += c;
  }
  return out;
}

std::string with_blanks(std::string_view characters) {
  std::string out;
  for (const char c : characters) out += concat({out.empty() ? "" : " ", c == '\n' ? "newline" : std::string(1, c)});
  return out;
}

}  // namespace

Result<std::vector<TemplatePiece>> read_template(std::string_view text) {
  std::vector<TemplatePiece> pieces;
  while (!text.empty()) {
    const auto at = text.find(opening);
    if (at != 0) pieces.push_back({false, text.substr(0, at)});
    if (at == std::string_view::npos) break;
    const auto end = text.find(closing, at);
    if (end == std::string_view::npos) {
      return Error{Errc::invalid_argument,
                   concat({"the expression ", text::quote(text.substr(at)), " is not closed: close it with }}"})};
    }
    pieces.push_back({true, text::trim(text.substr(at + opening.size(), end - at - opening.size()))});
    text.remove_prefix(end + closing.size());
  }
  return pieces;
}

Result<std::string> fill_in(std::string_view text, const Values& values, bool literally) {
  const auto pieces = read_template(text);
  if (!pieces) return pieces.error();
  std::string out;
  LiteralPlace place;
  for (const TemplatePiece& piece : *pieces) {
    if (!piece.is_expression) {
      out += piece.text;
      if (literally) place.follow(piece.text);
      continue;
    }
    const auto value = values.find(piece.text);
    if (value == values.end()) {
      return Error{Errc::invalid_argument, concat({"${{", piece.text, "}} has no value"})};
    }
    if (!literally) {
      out += value->second;
      continue;
    }
    const auto word = place.write(value->second);
    if (!word) return Error{word.error().code, concat({piece.text, " ", word.error().message})};
    out += *word;
  }
  return out;
}

std::string what_bash_does(const Replacement& value, char before, char after) {
  const bool in_quotes = before == after && (before == '"' || before == '\'');
  if (in_quotes) {
    const std::string active = active_characters(value.text, before == '"' ? "\"$`\\" : "'");
    return active.empty() ? active : concat({"bash acts on ", with_blanks(active), " in it, in these quotes too"});
  }
  std::string active = active_characters(value.text, "$`\"'\\;&|<>()*?[\n");
  if (value.text.starts_with('#') || value.text.starts_with('~')) active += value.text.front();
  const bool braces = value.text.find('{') < value.text.find('}') && value.text.find('}') != std::string::npos;
  if (braces && value.text.find_first_of(",.") != std::string::npos) active += '{';
  if (!active.empty()) return concat({"bash acts on ", with_blanks(active), " in it"});
  const bool splits = value.form != Replacement::Form::text && value.form != Replacement::Form::late_text &&
                      value.text.find_first_of(" \t") != std::string::npos;
  return splits ? "bash splits it at blanks" : "";
}

}  // namespace amldist::run
