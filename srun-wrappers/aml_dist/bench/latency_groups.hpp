// Which ranks are near each other, by what messages between them take.
#pragma once

#include <vector>

namespace amldist::tools {

/// Ranks that are near each other: two pairs are of different kinds where the one takes at least 1.4 times as long as
/// the next quicker one, and the largest such step parts near from far. One group where there is none.
[[nodiscard]] std::vector<std::vector<int>> groups_by_latency(const std::vector<std::vector<double>>& latency_ns);

}  // namespace amldist::tools
