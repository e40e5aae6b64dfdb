// The output of aml-run: JSON for programs, lines for people.
#pragma once

#include <string>
#include <vector>

#include "aml_run/follow.hpp"
#include "aml_run/plan.hpp"

namespace amldist::run {

/// A JSON object: job_id, name, script, output, ignored; with a followed job state, exit_status, nodes, seconds and
/// first_failure. Ends in a newline.
[[nodiscard]] std::string to_json(const Plan& plan, const std::string& script, const std::string& job_id,
                                  const JobState* state, const Followed* followed);

/// The table of keys: aligned columns, or a JSON array.
[[nodiscard]] std::string keys_as_table();
[[nodiscard]] std::string keys_as_json();

/// One line that names the keys of a job file that have no effect; empty if there are none.
void say_ignored(const Plan& plan);

/// One line about the end of a job.
void say_end(const std::string& id, const Followed& followed);

}  // namespace amldist::run
