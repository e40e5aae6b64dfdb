// What brings a job's software and data to its nodes, as lines of bash.
#pragma once

#include <string>
#include <vector>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// The lines that fetch; empty: nothing is to be fetched.
[[nodiscard]] std::vector<std::string> download_lines(const std::vector<Download>& downloads);

/// The lines that make the environment once, under a lock, and put it in front of PATH. It is the user's own, and named
/// by its file's content.
[[nodiscard]] std::string conda_lines(const CondaEnvironment& environment);

}  // namespace amldist::run
