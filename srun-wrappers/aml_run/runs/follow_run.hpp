// `--wait` for a run: its state drawn anew as it changes, until it ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/runs/run_state.hpp"

namespace amldist::run {

struct FollowedRun {
  RunState state;
  bool detached = false;  ///< the user let it go on alone
};

/// Draws the lines that `draw` makes on standard error: on a terminal in place, elsewhere only lines that changed.
/// Ctrl-C asks on a terminal whether to cancel; without one, and for SIGTERM, it cancels. Errors: Slurm has not
/// answered for long.
[[nodiscard]] Result<FollowedRun> follow_run(
    const Run& run, const std::function<std::vector<std::string>(const RunState&, bool colour)>& draw);

}  // namespace amldist::run
