#include "spank/session.hpp"
#include "os/environment.hpp"

#include <unistd.h>

#include <cstring>
#include <string_view>

namespace amldist::spank {

Result<Spec> Session::spec() const {
  if (!option) return Spec{};
  if (!*option) return option->error();
  return parse_spec(**option);
}

Result<Spec> Session::spec_in_partition(std::string_view partition) const {
  if (option) return spec();
  Spec spec;
  if (const auto found = policy.default_kind.find(partition); found != policy.default_kind.end()) {
    spec.kind = found->second;
  }
  return spec;
}

void keep_option(Session& session, const char* text) {
  if (text == nullptr) text = "";
  const std::size_t length = std::strlen(text);
  const auto inherited = inherited_option();
  const bool from_sbatch = !session.option && inherited && *inherited == text;
  const bool differs = session.option && (!*session.option || **session.option != text);
  if (differs && !session.first_is_inherited) session.mentions_differ = true;
  session.first_is_inherited = from_sbatch;
  // A text over the limit is not kept, only the sentence that refuses it.
  if (length <= longest_option) session.option = std::string(text, length);
  else session.option = parse_spec(std::string_view(text, length)).error();
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
