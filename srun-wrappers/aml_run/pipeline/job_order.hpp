// The order in which dependent jobs can be submitted.
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

/// Indices, each after those that it needs; otherwise in the given order. Errors: invalid_argument, jobs that depend on
/// each other in a cycle.
[[nodiscard]] Result<std::vector<std::size_t>> order_jobs(const std::vector<NamedJob>& jobs);

}  // namespace amldist::run
