// Which ranks are near each other, judged by the latency of messages between them.
#pragma once

#include <vector>

namespace amldist::tools {

/// Ranks that are near each other: two pairs are of different kinds if one takes at least 1.4 times as long as the next
/// faster one, and the largest such step separates near from far. One group if there is no such step.
[[nodiscard]] std::vector<std::vector<int>> groups_by_latency(const std::vector<std::vector<double>>& latency_ns);

}  // namespace amldist::tools
