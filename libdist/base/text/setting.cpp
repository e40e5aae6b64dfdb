#include "base/text/setting.hpp"

#include "base/text/text.hpp"

namespace amldist::setting {

using text::concat;

std::optional<std::string> value_of(const EnvironmentReader& environment, std::string_view name) {
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

Error invalid_word(std::string_view name, std::string_view value, std::span<const std::string_view> words) {
  return {Errc::invalid_argument, concat({name, "=", text::quote(value), ": use ",
                                          text::join(words.first(words.size() - 1)), " or ", words.back()})};
}

}  // namespace amldist::setting
