#include "step/cause/exception.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::size_t own_lines = 7;
constexpr std::size_t longest_line_number = 9;

struct Exception {
  std::string_view type;
  std::string_view text;
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

std::string base_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

/// The text is cut where all of it is too long: what it is and where are the better half.
Cause cause_of(const Exception& exception) {
  constexpr std::size_t longest_part = 60;
  const std::string type = clean_cause(exception.type, longest_part);
  const bool has_place = !exception.file.empty() && exception.line.size() <= longest_line_number &&
                         text::to_number(exception.line, 999'999'999).has_value();
  const std::string function = clean_cause(exception.function, longest_part / 2);
  const std::string place = has_place
                                ? concat({" at ", clean_cause(base_name(exception.file), longest_part / 2), ":",
                                          exception.line, function.empty() || function == "<module>" ? "" : " in ",
                                          function == "<module>" ? std::string() : function})
                                : std::string();
  const std::string_view between = type.empty() || exception.text.empty() ? "" : ": ";
  const std::string text = clean_cause(exception.text, longest_exception - type.size() - place.size() - between.size());
  return {is_about_peer(exception.type, exception.text) ? Cause::Kind::peer : Cause::Kind::exception,
          clean_cause(concat({type, between, text, place}), longest_exception)};
}

std::optional<Cause> parse_own(std::string_view content, MonotonicSeconds time) {
  const auto lines = text::split(content, '\n');
  if (lines.size() < own_lines || lines[0] != exception_file_head || lines[2].empty()) return std::nullopt;
  const auto written = text::to_number(lines[1], time.last);
  if (!written || *written < time.first) return std::nullopt;
  return cause_of({lines[2], lines[3], lines[4], lines[5], lines[6]});
}

/// The JSON string that begins at `at`, with its escapes resolved: "\\uNNNN" becomes '?'. nullopt: it has no end.
std::optional<std::string> string_at(std::string_view json, std::size_t at) {
  constexpr std::size_t digits = 4;
  std::string out;
  for (std::size_t i = at; i < json.size(); ++i) {
    if (json[i] == '"') return out;
    if (json[i] != '\\') {
      out += json[i];
    } else if (++i < json.size()) {
      const char escaped = json[i];
      out += escaped == 'n' ? '\n' : escaped == 'u' ? '?' : escaped;
      if (escaped == 'u') i += digits;
    }
  }
  return std::nullopt;
}

/// The value of the first member of this name that is a string.
std::optional<std::string> member(std::string_view json, std::string_view name) {
  const std::string key = concat({"\"", name, "\""});
  for (auto at = json.find(key); at != std::string_view::npos; at = json.find(key, at + 1)) {
    const auto value = json.find_first_not_of(" :\n\t", at + key.size());
    if (value != std::string_view::npos && json[value] == '"') return string_at(json, value + 1);
  }
  return std::nullopt;
}

/// The place in the last line of `  File "train.py", line 88, in forward` of a traceback.
void take_place(std::string_view traceback, Exception& exception) {
  constexpr std::string_view file = "  File \"";
  const auto at = traceback.rfind(file);
  if (at == std::string_view::npos) return;
  std::string_view rest = traceback.substr(at + file.size());
  rest = rest.substr(0, rest.find('\n'));
  const auto end = rest.find("\", line ");
  if (end == std::string_view::npos) return;
  exception.file = rest.substr(0, end);
  rest = rest.substr(end + 8);
  const auto comma = rest.find(", in ");
  exception.line = rest.substr(0, comma);
  if (comma != std::string_view::npos) exception.function = rest.substr(comma + 5);
}

std::optional<Cause> parse_elastic(std::string_view content) {
  const auto message = member(content, "message");
  if (!message || message->empty()) return std::nullopt;
  const std::string traceback = member(content, "py_callstack").value_or("");
  Exception exception;
  const auto colon = message->find(": ");
  const std::string_view first = std::string_view(*message).substr(0, colon);
  const bool has_type = colon != std::string::npos && first.find(' ') == std::string_view::npos;
  if (has_type) exception.type = first;
  exception.text = std::string_view(*message).substr(has_type ? colon + 2 : 0);
  take_place(traceback, exception);
  return cause_of(exception);
}

}  // namespace

std::optional<Cause> parse_exception(std::string_view content, MonotonicSeconds time) {
  const auto first = content.find_first_not_of(" \n\t");
  std::optional<Cause> cause;
  if (content.starts_with(exception_file_head)) cause = parse_own(content, time);
  else if (first != std::string_view::npos && content[first] == '{') cause = parse_elastic(content);
  return cause && !cause->text.empty() ? cause : std::nullopt;  // nothing of it may be printable
}

bool is_about_peer(std::string_view type, std::string_view text) {
  constexpr std::array<std::string_view, 21> words = {"connection closed by peer",
                                                      "connection reset",
                                                      "connection refused",
                                                      "connection was likely closed",
                                                      "broken pipe",
                                                      "brokenpipe",
                                                      "connectionreset",
                                                      "connectionrefused",
                                                      "connectionaborted",
                                                      "nccl",
                                                      "gloo",
                                                      "horovodinternalerror",
                                                      "distbackenderror",
                                                      "distnetworkerror",
                                                      "diststoreerror",
                                                      "peererror",
                                                      "abortederror",
                                                      "socket timeout",
                                                      "remote process exited",
                                                      "heartbeat timeout",
                                                      "tcpstore"};
  constexpr std::size_t enough = 4096;
  const std::string all = text::to_lower(concat({type.substr(0, enough), ": ", text.substr(0, enough)}));
  const auto has = [&](std::string_view word) { return all.find(word) != std::string::npos; };
  if (std::ranges::any_of(words, has)) return true;
  const bool waited = has("timed out") || has("timeout") || has("deadline exceeded");
  return waited && (has("rank") || has("peer") || has("barrier") || has("collective") || has("store"));
}

std::string error_file_name(std::uint32_t rank) { return std::to_string(rank) + ".error"; }

}  // namespace amldist::step
