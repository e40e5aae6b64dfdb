// Exit statuses of all commands, one meaning for each number. aml_dist(7) documents them.
//
// They are for failures of our own. The status of a program, a step or a followed job is passed on unchanged, and so
// are a shell's 126 and 127 and the statuses of aml-run --wait for a job's end (124 out of time, 130 cancelled, 137 out
// of memory).
#pragma once

#include "base/text/result.hpp"

namespace amldist::commands {

enum ExitStatus : int {
  exit_done = 0,
  exit_failed = 1,     ///< it did not work, or the answer is no: a check fails, a framework would, srun would refuse
  exit_usage = 2,      ///< the command line, an option's text or a file that describes the job is wrong
  exit_skipped = 3,    ///< there was nothing to do
  exit_not_found = 4,  ///< something that was named does not exist: a file, a program, a step, an instance type
  exit_no_slurm = 5,   ///< Slurm is not installed here, or does not answer
  exit_refused = 6,    ///< Slurm does not accept the job
  exit_hang = 75,      ///< the step was ended because it hung. Reserved: no command uses it yet
};

/// The description in --help.
inline constexpr const char* exit_status_help =
    "0 done, 1 failed, 2 wrong usage, 3 nothing to do, 4 something named does not\n"
    "exist, 5 no Slurm, 6 refused by Slurm (see aml_dist(7))";

/// For an error about the request. Slurm has no error code of its own: code that talks to it returns exit_no_slurm.
[[nodiscard]] constexpr ExitStatus exit_status_of(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
    case Errc::mismatch:
    case Errc::limit:
      return exit_usage;
    case Errc::not_found:
      return exit_not_found;
    case Errc::unavailable:
    case Errc::timeout:
    case Errc::peer:
    case Errc::aborted:
    case Errc::internal:
      break;
  }
  return exit_failed;
}

}  // namespace amldist::commands
