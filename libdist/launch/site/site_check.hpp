// A health check of the site's own, which `aml-dist check` runs beside its own checks:
//
//   site_check.nhc=exit,20 /usr/sbin/nhc -t 0
//   site_check.nvidia=nodeverdict,15,root /usr/bin/health-validation run
//
// The name becomes the check's: site.nhc. Words are separated by blanks; there are no quotes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::launch {

/// How a tool says what it found.
enum class VerdictFormat : std::uint8_t {
  exit,         ///< 0 is healthy; the last line is the evidence (NHC)
  status,       ///< JSON whose objects have a "status" (healthagent, dcgmi diag -j, oci-dr-hpc-v2)
  nodeverdict,  ///< NVIDIA Health Validation's JSON
};

struct SiteCheck {
  VerdictFormat format = VerdictFormat::exit;
  std::uint32_t seconds = 10;      ///< longer than this it is not waited for
  bool needs_root = false;         ///< other users skip it
  std::vector<std::string> words;  ///< the program's absolute path and its arguments

  friend bool operator==(const SiteCheck&, const SiteCheck&) = default;
};

inline constexpr std::size_t most_site_checks = 8;
inline constexpr std::uint32_t longest_site_check = 300;  ///< seconds

/// Small letters, digits, '-' and '_', at most 24.
[[nodiscard]] bool is_site_check_name(std::string_view name) noexcept;

/// "FORMAT[,SECONDS][,root] /PROGRAM [ARGUMENT]..."; nullopt if malformed.
[[nodiscard]] std::optional<SiteCheck> parse_site_check(std::string_view text);

}  // namespace amldist::launch
