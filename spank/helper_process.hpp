// Another program, run to its end from a task's process before the task itself is started.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace amldist::spank {

/// Runs `arguments` (the first is an absolute path) with the given environment, standard output read and the rest on
/// /dev/null, and kills it when the time is over. Returns what it wrote, whatever its exit status. Errors: not_found
/// when it cannot be started, unavailable when it does not end in time, limit above 64 KiB.
[[nodiscard]] Result<std::string> run_helper(const std::vector<std::string>& arguments, char** environment,
                                             std::chrono::milliseconds timeout);

}  // namespace amldist::spank
