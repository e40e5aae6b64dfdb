// `--wait` for a run: redraws its state as it changes, until it ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aml_run/runs/run.hpp"
#include "aml_run/runs/run_state.hpp"

namespace amldist::run {

struct FollowedRun {
  RunState state;
  bool detached = false;  ///< the user stopped following; the run goes on
};

/// Draws the lines that `draw` makes on standard error: on a terminal in place, elsewhere only lines that changed. On a
/// terminal Ctrl-C asks whether to cancel; without a terminal, and for SIGTERM, it cancels. Errors: Slurm has not
/// answered for a long time.
[[nodiscard]] Result<FollowedRun> follow_run(
    const Run& run, const std::function<std::vector<std::string>(const RunState&, bool colour)>& draw);

}  // namespace amldist::run
