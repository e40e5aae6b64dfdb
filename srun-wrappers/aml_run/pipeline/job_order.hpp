// The order in which jobs that need each other can be submitted.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

struct NamedJob {
  std::string name;
  std::set<std::string> needs;
};

/// Indices, each behind those that it needs; as they are given where that leaves a choice. Errors: invalid_argument,
/// jobs that need each other in a circle.
[[nodiscard]] Result<std::vector<std::size_t>> order_jobs(const std::vector<NamedJob>& jobs);

}  // namespace amldist::run
