// The display of a sweep for people and programs.
#pragma once

#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/runs/run_state.hpp"
#include "aml_run/sweep/sweep_store.hpp"

namespace amldist::run {

/// A table: trial, parameters, state, metric; the best one is marked. `short_form`: at most a screen, for a running
/// sweep: the running trials and the best ones.
[[nodiscard]] std::vector<std::string> draw_sweep(const SweepResults& results, bool colour, bool short_form);

/// {"run", "kind", "state", "objective", "best", "trials": [{"trial", "parameters", "state", "metric", ...}]}
[[nodiscard]] std::string sweep_to_json(const Run& run, const RunState& state, const SweepResults& results);

/// One sentence about the end: how many trials ended in which way, and the best.
[[nodiscard]] std::string summary_of(const SweepResults& results);

}  // namespace amldist::run
