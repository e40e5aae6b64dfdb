#include "aml_dist/bench/latency_groups.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace amldist::tools {
namespace {

using Matrix = std::vector<std::vector<double>>;

/// The latency from which on a pair is far; infinite if all are alike.
double first_far_latency(const Matrix& latency_ns) {
  constexpr double another_kind = 1.4;
  std::vector<double> all;
  for (std::size_t a = 0; a < latency_ns.size(); ++a) {
    all.insert(all.end(), latency_ns[a].begin() + static_cast<std::ptrdiff_t>(a) + 1, latency_ns[a].end());
  }
  std::ranges::sort(all);
  double most = another_kind;
  double far = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i - 1] <= 0 || all[i] / all[i - 1] < most) continue;
    most = all[i] / all[i - 1];
    far = all[i];
  }
  return far;
}

}  // namespace

std::vector<std::vector<int>> groups_by_latency(const Matrix& latency_ns) {
  const double far = first_far_latency(latency_ns);
  std::vector<std::vector<int>> groups;
  std::vector<bool> taken(latency_ns.size());
  for (std::size_t first = 0; first < latency_ns.size(); ++first) {
    if (taken[first]) continue;
    std::vector<std::size_t> group = {first};
    taken[first] = true;
    for (std::size_t i = 0; i < group.size(); ++i) {  // grows meanwhile
      for (std::size_t other = 0; other < latency_ns.size(); ++other) {
        if (taken[other] || latency_ns[group[i]][other] >= far) continue;
        taken[other] = true;
        group.push_back(other);
      }
    }
    std::ranges::sort(group);
    groups.emplace_back(group.begin(), group.end());
  }
  return groups;
}

}  // namespace amldist::tools
