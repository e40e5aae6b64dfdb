#include "shared/task_variables.hpp"

#include <algorithm>
#include <optional>

#include "base/text/text.hpp"
#include "launch/frameworks/task_environment.hpp"

namespace amldist::commands {
namespace {

using text::concat;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

struct Reference {
  std::string_view name;
  std::size_t length;  ///< of the whole reference, from its dollar sign on
};

/// The reference that begins at the dollar sign at `at`: $NAME or ${NAME}, of any name.
std::optional<Reference> reference_at(std::string_view text, std::size_t at) {
  const bool braces = at + 1 < text.size() && text[at + 1] == '{';
  const std::size_t first = at + (braces ? 2 : 1);
  std::size_t end = first;
  while (end < text.size() && is_name_character(text[end])) ++end;
  if (end == first || (braces && (end == text.size() || text[end] != '}'))) return std::nullopt;
  return Reference{text.substr(first, end - first), end + (braces ? 1 : 0) - at};
}

/// Calls `visit(Reference, place)` for each reference until it returns false.
template <typename Visit>
void each_reference(std::string_view text, Visit visit) {
  for (std::size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const auto reference = reference_at(text, at);
    if (reference && !visit(*reference, at)) return;
  }
}

bool is_task_variable(std::string_view name) {
  return std::ranges::find(launch::task_variables(), name) != launch::task_variables().end();
}

}  // namespace

bool mentions_task_variable(std::string_view argument) {
  bool found = false;
  each_reference(argument, [&](const Reference& reference, std::size_t) {
    found = is_task_variable(reference.name);
    return !found;
  });
  return found;
}

bool mentions(std::string_view text, std::string_view name) {
  bool found = false;
  each_reference(text, [&](const Reference& reference, std::size_t) {
    found = reference.name == name;
    return !found;
  });
  return found;
}

Result<std::string> expand_task_variables(std::string_view argument, const EnvironmentReader& environment) {
  std::string out;
  std::size_t copied = 0;
  std::string_view missing;
  each_reference(argument, [&](const Reference& reference, std::size_t at) {
    if (!is_task_variable(reference.name)) return true;
    const auto value = environment(reference.name);
    if (!value) {
      missing = reference.name;
      return false;
    }
    out += argument.substr(copied, at - copied);
    out += *value;
    copied = at + reference.length;
    return true;
  });
  if (!missing.empty()) {
    return Error{Errc::not_found, concat({"$", missing,
                                          " in an argument cannot be expanded: this kind of job does not "
                                          "set it in its tasks"})};
  }
  out += argument.substr(copied);
  return out;
}

}  // namespace amldist::commands
