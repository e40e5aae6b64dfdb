#include "aml_dist/common/table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace amldist::tools {

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string decimal(double value, int digits) {
  std::array<char, 64> words{};
  std::snprintf(words.data(), words.size(), "%.*f", digits, value);
  return words.data();
}

}  // namespace amldist::tools
