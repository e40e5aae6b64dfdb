#include "base/text/environment.hpp"

#include <algorithm>

namespace amldist {

EnvironmentPatch::Change& EnvironmentPatch::change_of(std::string_view name) {
  const auto found = std::ranges::find(changes_, name, &Change::name);
  if (found != changes_.end()) return *found;
  return changes_.emplace_back(Change{std::string(name), std::nullopt});
}

void EnvironmentPatch::set(std::string_view name, std::string value) { change_of(name).value = std::move(value); }

void EnvironmentPatch::unset(std::string_view name) { change_of(name).value.reset(); }

std::optional<std::string_view> EnvironmentPatch::value_of(std::string_view name) const noexcept {
  const auto found = std::ranges::find(changes_, name, &Change::name);
  if (found == changes_.end() || !found->value) return std::nullopt;
  return *found->value;
}

bool EnvironmentPatch::mentions(std::string_view name) const noexcept {
  return std::ranges::find(changes_, name, &Change::name) != changes_.end();
}

}  // namespace amldist
