// What was slow in earlier measurements: a file that the site names with --record, a line for each part and step.
//
//   2026-11-27T14:55:02Z<TAB>node3 mlx5_1:1<TAB>1234.0
#pragma once

#include <string>
#include <vector>

namespace amldist::tools {

/// Adds what is slow now ("node3", "node3 mlx5_1:1", ...) in `step`, and returns what the file says of it, "node3: the
/// 3rd time since 2026-11-02", or why it cannot be read or written; empty if nothing is slow.
[[nodiscard]] std::string record_slow(const std::string& path, const std::vector<std::string>& slow,
                                      const std::string& step);

}  // namespace amldist::tools
