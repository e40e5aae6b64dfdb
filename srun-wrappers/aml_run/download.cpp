#include "aml_run/download.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "base/text/text.hpp"
#include "shared/shell.hpp"

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

std::optional<std::string> download_place(std::string_view folder, std::string_view url) {
  constexpr std::string_view scheme = "https://";
  if (!url.starts_with(scheme)) return std::nullopt;
  url.remove_prefix(scheme.size());
  const auto query = url.find_first_of("?#");
  const std::string_view path = url.substr(0, query);
  const auto parts = text::split(path, '/');
  const bool good = parts.size() > 1 && std::ranges::none_of(parts, [](std::string_view part) {
                      return part.empty() || part == "." || part == ".." ||
                             std::ranges::any_of(part, [](char c) { return c <= ' ' && c >= 0; });
                    });
  if (!good) return std::nullopt;
  const std::string owner = std::to_string(::getuid());
  if (query == std::string_view::npos) return concat({folder, "/", owner, "/", path});
  const auto last = path.rfind('/');
  return concat(
      {folder, "/", owner, "/", path.substr(0, last + 1), hash_of(url.substr(query)), "-", path.substr(last + 1)});
}

std::vector<std::string> download_lines(const std::vector<Download>& downloads) {
  if (downloads.empty()) return {};
  std::vector<std::string> out = {
      "# Inputs behind https: are fetched once.\naml_fetch() { # aml_fetch URL FILE\n    [[ ! -e $2 ]] || return 0\n"
      "    mkdir -p -- \"${2%/*}\" && [[ -O ${2%/*} ]] &&\n"
      "        curl --fail --silent --show-error --location --proto =https --output \"$2.$SLURM_JOB_ID.$$\" -- \"$1\" "
      "&&\n"
      "        mv -- \"$2.$SLURM_JOB_ID.$$\" \"$2\" && return\n    rm -f -- \"$2.$SLURM_JOB_ID.$$\"\n"
      "    echo \"aml-dist: $1 cannot be fetched to $2\" >&2\n    exit 4\n}"};
  out.reserve(downloads.size() + 1);
  for (const Download& each : downloads)
    out.push_back(concat({"aml_fetch ", shell::quote(each.url), " ", shell::quote(each.file)}));
  return out;
}

}  // namespace amldist::run
