// The options of aml-run itself, in what Slurm's options have left of the command line.
#pragma once

#include <string>
#include <vector>

#include "aml_run/command/command_line.hpp"

namespace amldist::run {

struct OwnOptions {
  std::vector<std::string> sets;    ///< of --set, as given
  std::vector<std::string> extras;  ///< what is not an option of ours, and words behind the job file
};

/// Reads `words` into `line`. Errors: invalid_argument: a missing value, an option given twice, a value that is none.
[[nodiscard]] Result<OwnOptions> take_own_options(const std::vector<std::string>& words, CommandLine& line);

}  // namespace amldist::run
