// The lines of bash that bring a job's software and data to its nodes.
#pragma once

#include <string>
#include <vector>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// The lines that fetch data; may be empty.
[[nodiscard]] std::vector<std::string> download_lines(const std::vector<Download>& downloads);

/// The lines that make the environment once, under a lock, and put it first in PATH. It belongs to the user, and its
/// name is the hash of its file.
[[nodiscard]] std::string conda_lines(const CondaEnvironment& environment);

}  // namespace amldist::run
