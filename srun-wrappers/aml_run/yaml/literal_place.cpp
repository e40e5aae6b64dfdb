#include "aml_run/yaml/literal_place.hpp"

#include <algorithm>

#include "shared/shell.hpp"

namespace amldist::run {
namespace {

/// The characters that mean the same everywhere in bash.
bool is_harmless(std::string_view value) {
  constexpr std::string_view marks = "_@%+=:,./-";
  return !value.empty() && std::ranges::all_of(value, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           marks.find(c) != std::string_view::npos;
  });
}

bool ends_word(char c) { return std::string_view(" \t\n;&|()<>").find(c) != std::string_view::npos; }

}  // namespace

void LiteralPlace::follow(std::string_view part) {
  std::size_t at = escaped_ ? 1 : 0;
  if (!part.empty()) escaped_ = false;
  while (at < part.size() && quoting_ != Quoting::uncertain) at = step(part, at);
  if (!part.empty())
    behind_dollar_ = part.back() == '$' && quoting_ != Quoting::single_quotes && quoting_ != Quoting::comment;
}

std::size_t LiteralPlace::step(std::string_view part, std::size_t at) {
  const char c = part[at];
  switch (quoting_) {
    case Quoting::bare:
      return step_bare(part, at);
    case Quoting::comment:
      if (c == '\n') quoting_ = Quoting::bare;
      word_begins_ = true;
      return at + 1;
    case Quoting::single_quotes:
      if (c == '\'') quoting_ = Quoting::bare;
      return at + 1;
    case Quoting::double_quotes:
      if (c == '\\') {
        escaped_ = at + 1 == part.size();
        return at + 2;
      }
      if (c == '"') quoting_ = Quoting::bare;
      else if (c == '`' || part.substr(at).starts_with("$(") || part.substr(at).starts_with("${")) {
        quoting_ = Quoting::uncertain;
      }
      return at + 1;
    case Quoting::uncertain:
      break;
  }
  return part.size();
}

std::size_t LiteralPlace::step_bare(std::string_view part, std::size_t at) {
  const char c = part[at];
  const std::string_view rest = part.substr(at);
  const bool word_begins = word_begins_;
  word_begins_ = ends_word(c);
  if (c == '\\') {
    escaped_ = at + 1 == part.size();
    return at + 2;
  }
  if (c == '\'') quoting_ = Quoting::single_quotes;
  else if (c == '"') quoting_ = Quoting::double_quotes;
  else if (c == '#' && word_begins) quoting_ = Quoting::comment;
  else if (c == '`' || rest.starts_with("$'") || rest.starts_with("${") || rest.starts_with("((") ||
           rest.starts_with("<<"))
    quoting_ = Quoting::uncertain;
  return at + 1;
}

Result<std::string> LiteralPlace::write(std::string_view value) {
  word_begins_ = false;
  std::string out;
  if (escaped_ && quoting_ != Quoting::uncertain) {
    return Error{Errc::invalid_argument, "follows a backslash: remove the backslash"};
  }
  if (behind_dollar_) return Error{Errc::invalid_argument, "follows a $: remove the $"};
  switch (quoting_) {
    case Quoting::bare:
      return shell::quote(value);
    case Quoting::comment:
      out = value;
      std::ranges::replace(out, '\n', ' ');
      return out;
    case Quoting::single_quotes:
      for (const char c : value) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
      return out;
    case Quoting::double_quotes:
      for (const char c : value) {
        if (std::string_view("\"\\$`").find(c) != std::string_view::npos) out += '\\';
        out += c;
      }
      return out;
    case Quoting::uncertain:
      break;
  }
  if (is_harmless(value)) return std::string(value);
  return Error{
      Errc::invalid_argument,
      "has characters that are special to bash, at a place where it is unclear how bash reads them: write it as a "
      "word of its own, before here-documents, backticks, $'...' and \"$(...)\""};
}

std::optional<char> LiteralPlace::quote() const noexcept {
  if (quoting_ == Quoting::uncertain) return std::nullopt;
  if (quoting_ == Quoting::double_quotes) return '"';
  return quoting_ == Quoting::single_quotes ? '\'' : '\0';
}

}  // namespace amldist::run
