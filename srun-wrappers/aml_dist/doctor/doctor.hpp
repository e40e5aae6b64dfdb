// `aml-dist doctor`: predicts how each framework interprets a task's environment, before it costs an hour.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aml_dist/doctor/examination.hpp"
#include "aml_dist/explain/explain.hpp"

namespace amldist::tools {

struct DoctorOptions {
  ExplainOptions step;                 ///< an imagined step, as explain takes it
  std::string env_file;                ///< --env-file: a saved environment
  std::vector<std::string> variables;  ///< --env NAME=VALUE, or NAME to remove it
  std::string mpi;                     ///< --mpi: pmix or none, of an imagined step
  doctor::Selection selection;
};

/// Prints to standard output; returns an ExitStatus: exit_failed if something would fail. Errors go to standard error,
/// one line. Imports and starts nothing.
int run_doctor(const DoctorOptions& options);

}  // namespace amldist::tools
