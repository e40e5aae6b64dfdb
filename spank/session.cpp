#include "spank/session.hpp"

#include <cstring>

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
  // A text over the limit is not kept, only the sentence that refuses it.
  if (length <= longest_option) session.option = std::string(text, length);
  else session.option = parse_spec(std::string_view(text, length)).error();
}

}  // namespace amldist::spank
