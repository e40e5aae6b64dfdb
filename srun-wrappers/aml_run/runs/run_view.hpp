// The display of a run for people and programs.
#pragma once

#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/runs/run_state.hpp"

namespace amldist::run {

/// The jobs as lines, each below those that it needs, with the lines between them, state, job number and time.
/// `colour`: with the escape sequences of a terminal.
[[nodiscard]] std::vector<std::string> draw_run(const Run& run, const RunState& state, bool colour);

/// {"run", "kind", "state", "jobs": [{"name", "state", "job_id", "exit_status", "needs", "output"}]} and, for arrays,
/// "trials".
[[nodiscard]] std::string run_to_json(const Run& run, const RunState& state);

/// One word: "running", "completed", "failed", "cancelled", "waiting".
[[nodiscard]] std::string word_for(const RunState& state);

}  // namespace amldist::run
