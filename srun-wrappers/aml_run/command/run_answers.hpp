// --show, --list, --cancel, --resume, --stream and --download.
#pragma once

#include "aml_run/command/command_line.hpp"
#include "aml_run/runs/run.hpp"

namespace amldist::run {

/// Answers what is asked about runs and jobs that there are; returns the exit status.
[[nodiscard]] int answer_about_runs(const CommandLine& line);

/// Follows a run to its end, then shows it; the exit status is the run's.
[[nodiscard]] int wait_for_run(const CommandLine& line, const Run& run);

/// Writes --svg's file, and what a run is now: as JSON, or as lines unless `quiet`.
[[nodiscard]] int show_run(const CommandLine& line, const Run& run, bool print);

}  // namespace amldist::run
