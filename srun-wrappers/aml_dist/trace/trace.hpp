// `aml-dist trace`: which ranks wait for which, from the flight recorders of a step that runs or has died.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace amldist::tools {

struct TraceOptions {
  /// A folder, "JOBID.STEP" or "JOBID"; or dumps of PyTorch's own flight recorder; dumps behind the first are compared
  /// with it. Empty: list the steps that there are.
  std::vector<std::string> steps = {};
  std::string export_folder;  ///< --export-fr DIR: as dumps of PyTorch's flight recorder
  bool json = false;
  std::string format = "text";  ///< or "json", "openmetrics"; json is the same as the second
  std::string svg;              ///< --svg FILE: the timeline as a picture, beside what is printed
  std::string waits_svg;        ///< --waits-svg FILE: who waits for whom
  bool stacks = false;          ///< after the table, the stack of each process; of a live step merged
  bool states = false;          ///< what a live view asks each node for
  unsigned watch = 0;           ///< --watch SECONDS: again and again; 0: once
  std::size_t last = 40;        ///< calls of each rank in JSON and picture
};

/// Prints to standard output; returns an ExitStatus. Errors go to standard error, one line.
int trace(const TraceOptions& options);

}  // namespace amldist::tools
