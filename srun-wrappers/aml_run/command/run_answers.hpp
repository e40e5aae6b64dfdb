// --show, --list, --cancel, --resume, --stream and --download. Each returns the exit status.
#pragma once

#include "aml_run/command/command_line.hpp"
#include "aml_run/runs/run.hpp"

namespace amldist::run {

[[nodiscard]] int list_runs(const CommandLine& line);

/// For the run or the job that the command line names.
[[nodiscard]] int answer_show(const CommandLine& line);
[[nodiscard]] int answer_cancel(const CommandLine& line);
[[nodiscard]] int answer_resume(const CommandLine& line);
[[nodiscard]] int answer_stream(const CommandLine& line);
[[nodiscard]] int answer_download(const CommandLine& line);

/// Follows a run to its end, then shows it; the exit status is the run's.
[[nodiscard]] int wait_for_run(const CommandLine& line, const Run& run);

/// Prints the present state of a run: as JSON, or as lines.
[[nodiscard]] int show_run(const CommandLine& line, const Run& run);

}  // namespace amldist::run
