// `aml-dist trace`: who waits for whom, from the flight recorders of a step that runs or that has died.
#pragma once

#include <cstddef>
#include <string>

namespace amldist::tools {

struct TraceOptions {
  std::string step;  ///< a folder, "JOBID.STEP" or "JOBID"; empty: list the steps that there are
  bool json = false;
  std::string format = "text";  ///< or "json", "openmetrics"; json is the same as the second
  std::string svg;              ///< --svg FILE: the timeline as a picture, beside what is printed
  std::size_t last = 40;        ///< calls of each rank in JSON and picture
};

/// Prints to standard output; returns an ExitStatus. Errors go to standard error, one line.
int trace(const TraceOptions& options);

}  // namespace amldist::tools
