#include "launch/site/site_check.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

constexpr std::array<std::pair<std::string_view, VerdictFormat>, 3> formats = {{
    {"exit", VerdictFormat::exit},
    {"status", VerdictFormat::status},
    {"nodeverdict", VerdictFormat::nodeverdict},
}};

/// Applies what follows the format: a number of seconds, or "root".
bool apply_option(SiteCheck& check, std::string_view option) {
  if (option == "root") {
    check.needs_root = true;
    return true;
  }
  const auto seconds = text::to_number(option, longest_site_check);
  if (!seconds || *seconds == 0) return false;
  check.seconds = static_cast<std::uint32_t>(*seconds);
  return true;
}

}  // namespace

bool is_site_check_name(std::string_view name) noexcept {
  constexpr std::size_t longest_name = 24;
  return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

std::optional<SiteCheck> parse_site_check(std::string_view text) {
  const auto blank = text.find_first_of(" \t");
  if (blank == std::string_view::npos) return std::nullopt;
  const auto options = text::split(text.substr(0, blank), ',');
  const auto format = std::ranges::find(formats, options.front(), &std::pair<std::string_view, VerdictFormat>::first);
  if (format == formats.end()) return std::nullopt;
  SiteCheck check;
  check.format = format->second;
  for (std::size_t i = 1; i < options.size(); ++i) {
    if (!apply_option(check, options[i])) return std::nullopt;
  }
  const auto words = text::words_of(text.substr(blank));
  check.words.assign(words.begin(), words.end());
  const bool is_absolute = !check.words.empty() && check.words.front().starts_with('/');
  return is_absolute ? std::optional(std::move(check)) : std::nullopt;
}

}  // namespace amldist::launch
