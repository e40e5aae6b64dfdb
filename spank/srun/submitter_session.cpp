#include "spank/srun/submitter_session.hpp"

#include "base/os/environment.hpp"

#include <unistd.h>

namespace amldist::spank {

void SubmitterSession::take_option(std::string_view text) {
  const bool is_first = !request.option;
  if (!is_first && !option_is_inherited && text != option_text) mentions_differ = true;
  option_is_inherited = is_first && inherited_option() == text;
  request.option = launch::parse_spec(text);
  option_text = text;
}

std::optional<std::string> inherited_option() {
  constexpr std::string_view ending = "SPANK_OPTION_aml_dist_aml_dist";
  for (const std::string& variable : all_own_variables()) {
    const std::string_view entry = variable;
    const auto equals = entry.find('=');
    if (equals != std::string_view::npos && entry.substr(0, equals).ends_with(ending)) {
      return std::string(entry.substr(equals + 1));
    }
  }
  return std::nullopt;
}

}  // namespace amldist::spank
