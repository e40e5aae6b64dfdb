#include "launch/rendezvous/stamp.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {
constexpr std::size_t longest_stamp = 8192;
}

std::optional<Stamp> Stamp::read(const EnvironmentReader& environment) {
  const auto text = environment(stamp_variable);
  if (!text || text->empty() || text->size() > longest_stamp) return std::nullopt;
  const auto words = text::split(*text, ' ');
  Stamp stamp{std::string(words.front())};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (equals != std::string_view::npos) stamp.add(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  return stamp;
}

std::string Stamp::to_string() const {
  std::string out = step_;
  for (const auto& [name, value] : values_) out += text::concat({" ", name, "=", value});
  return out;
}

std::optional<std::string_view> Stamp::value_of(std::string_view name) const noexcept {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, std::string>::first);
  return found == values_.end() ? std::nullopt : std::optional<std::string_view>(found->second);
}

bool Stamp::wrote(std::string_view name, std::string_view value) const noexcept { return value_of(name) == value; }

std::optional<std::string> users_own(const EnvironmentReader& environment, std::string_view name) {
  auto value = environment(name);
  if (!value || value->empty()) return std::nullopt;
  const auto stamp = Stamp::read(environment);
  if (stamp && stamp->wrote(name, *value)) return std::nullopt;
  return value;
}

}  // namespace amldist::launch
