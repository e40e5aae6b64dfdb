// The recorders of a step as a table and as JSON.
#pragma once

#include <string>
#include <string_view>

#include "aml_dist/trace/trace_step.hpp"

namespace amldist::tools {

/// A description of the step, one line per rank with its newest call, and one per stall.
[[nodiscard]] std::string to_table(const TracedStep& step);

/// One object: job, size, stalls, recorders (each with its newest `last` calls), problems.
[[nodiscard]] std::string to_json(const TracedStep& step, std::size_t last);

/// "never-called", "stopped", "dead", "slow", "differs", "no-recorder".
[[nodiscard]] std::string_view word_of(trace::MissingRank::Why why);

/// "0.8 ms", "12.3 s", "2 h 5 min".
[[nodiscard]] std::string describe_duration(std::int64_t nanoseconds);

}  // namespace amldist::tools
