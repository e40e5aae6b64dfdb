#include "shared/metrics.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/text/text.hpp"

namespace amldist::commands {
namespace {

using text::concat;

/// Backslash, quote and newline are escaped; the format is UTF-8, we write ASCII.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += concat({"\\", std::string_view(&c, 1)});
    else if (c == '\n') out += "\\n";
    else out += c >= ' ' && c < 0x7f ? c : '?';
  }
  return out;
}

std::string labels_text(const Gauge::Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) out += concat({out.empty() ? "{" : ",", name, "=\"", escaped(value), "\""});
  return out.empty() ? out : out + "}";
}

std::string number_text(double value) {
  constexpr double most_exact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::fabs(value) < most_exact) {
    return std::to_string(static_cast<long long>(value));
  }
  std::array<char, 32> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.17g", value));
  return text.data();
}

}  // namespace

std::string to_openmetrics(const std::vector<Gauge>& gauges) {
  std::string out;
  for (const Gauge& gauge : gauges) {
    if (gauge.samples.empty()) continue;
    out += concat({"# TYPE ", gauge.name, " gauge\n# HELP ", gauge.name, " ", escaped(gauge.help), "\n"});
    for (const auto& [labels, value] : gauge.samples) {
      out += concat({gauge.name, labels_text(labels), " ", number_text(value), "\n"});
    }
  }
  return out + "# EOF\n";
}

}  // namespace amldist::commands
