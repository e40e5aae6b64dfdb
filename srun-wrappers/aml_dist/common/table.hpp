// A plain table for terminals: left-aligned columns, two blanks apart.
#pragma once

#include <string>
#include <vector>

namespace amldist::tools {

/// Rows of cells; the first row is the head. Returns lines that end in newlines, without trailing blanks.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// A number with this many decimals.
[[nodiscard]] std::string decimal(double value, int digits);

}  // namespace amldist::tools
