#include "aml_dist/doctor/saved_environment.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>

#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;
using Variables = std::map<std::string, std::string, std::less<>>;

/// A shell's name; exported functions ("BASH_FUNC_x%%") are variables of env, too.
bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return false;
  return std::ranges::all_of(text,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '%' || c == '.'; });
}

/// "NAME=VALUE" to its place; text without a name to the value before it, if there is one.
void take(std::string_view entry, Variables& variables, std::string& last) {
  const std::size_t equals = entry.find('=');
  if (equals != std::string_view::npos && is_name(entry.substr(0, equals))) {
    last = std::string(entry.substr(0, equals));
    variables[last] = std::string(entry.substr(equals + 1));
  } else if (!last.empty() && !entry.empty()) {
    variables[last] += concat({"\n", entry});
  }
}

Result<std::string> read_all(std::istream& stream, const std::string& path) {
  std::string content;
  std::string block(1U << 16, '\0');
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())) || stream.gcount() > 0) {
    content.append(block, 0, static_cast<std::size_t>(stream.gcount()));
    if (content.size() > longest_saved_environment) {
      return Error{Errc::limit, concat({"--env-file ", text::quote(path), " is longer than any environment"})};
    }
  }
  if (stream.bad()) return Error{Errc::not_found, concat({"--env-file ", text::quote(path), " cannot be read"})};
  return content;
}

}  // namespace

Result<Variables> parse_saved_environment(std::string_view content) {
  const char separator = content.find('\0') != std::string_view::npos ? '\0' : '\n';
  Variables variables;
  std::string last;
  for (const std::string_view entry : text::split(content, separator)) take(entry, variables, last);
  if (!variables.empty()) return variables;
  return Error{Errc::invalid_argument, "no NAME=VALUE in it: save the environment with env or env -0"};
}

Result<EnvironmentReader> read_saved_environment(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return Error{Errc::not_found, concat({"--env-file ", text::quote(path), " cannot be read"})};
  }
  auto content = read_all(path == "-" ? std::cin : file, path);
  if (!content) return content.error();
  auto variables = parse_saved_environment(*content);
  if (!variables) {
    return Error{variables.error().code, concat({"--env-file ", text::quote(path), ": ", variables.error().message})};
  }
  return EnvironmentReader([all = std::move(*variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found != all.end() ? std::optional(found->second) : std::nullopt;
  });
}

}  // namespace amldist::doctor
