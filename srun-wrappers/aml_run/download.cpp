#include "aml_run/download.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// Another query may give another file. Only a name: the file is the user's own.
std::string hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::array<char, 16> out{};
  const auto end = std::to_chars(out.data(), out.data() + out.size(), hash, 16);
  return {out.data(), end.ptr};
}

}  // namespace

std::optional<Download> download_of(const std::string& shared_folder, const std::string& url) {
  constexpr std::string_view scheme = "https://";
  if (!url.starts_with(scheme)) return std::nullopt;
  const std::string_view rest = std::string_view(url).substr(scheme.size());
  const auto query = rest.find_first_of("?#");
  const std::string_view path = rest.substr(0, query);
  const auto parts = text::split(path, '/');
  const bool good = parts.size() > 1 && std::ranges::none_of(parts, [](std::string_view part) {
                      return part.empty() || part == "." || part == ".." ||
                             std::ranges::any_of(part, [](char c) { return c <= ' ' && c >= 0; });
                    });
  if (!good) return std::nullopt;
  const std::string owner = std::to_string(::getuid());
  if (query == std::string_view::npos) return Download{url, shared_folder, concat({owner, "/", path})};
  const auto last = path.rfind('/') + 1;
  return Download{url, shared_folder,
                  concat({owner, "/", path.substr(0, last), hash_of(rest.substr(query)), "-", path.substr(last)})};
}

}  // namespace amldist::run
