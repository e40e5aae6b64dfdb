#include "aml_run/components/optional_text.hpp"

#include <algorithm>

#include "aml_run/expressions.hpp"
#include "base/text/text.hpp"

namespace amldist::run {

Result<std::string> keep_given_options(std::string_view command,
                                       const std::function<bool(std::string_view input)>& has_value) {
  std::string out;
  for (;;) {
    const auto at = command.find("$[[");
    out += command.substr(0, at);
    if (at == std::string_view::npos) return out;
    const auto end = command.find("]]", at);
    if (end == std::string_view::npos) {
      return Error{Errc::invalid_argument, text::concat({"the part ", text::quote(command.substr(at, 40)),
                                                         " is not closed: close it with ]]"})};
    }
    const std::string_view part = command.substr(at + 3, end - at - 3);
    if (part.find("$[[") != std::string_view::npos) {
      return Error{Errc::invalid_argument, "$[[...]] is inside another $[[...]]: close the first one before"};
    }
    const auto pieces = read_template(part);
    if (!pieces) return pieces.error();
    const bool is_given = std::ranges::all_of(*pieces, [&](const TemplatePiece& piece) {
      std::string_view name = piece.text;
      if (!piece.is_expression || !name.starts_with("inputs.")) return true;
      name.remove_prefix(7);
      if (name.ends_with(".path")) name.remove_suffix(5);
      return has_value(name);
    });
    if (is_given) out += part;
    command.remove_prefix(end + 2);
  }
}

}  // namespace amldist::run
