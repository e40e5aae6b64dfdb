// Exit statuses of aml-run and the launchers, as their man pages document them. A job that was followed, or a step,
// hands its own status through instead.
#pragma once

#include "core/result.hpp"

namespace amldist::commands {

enum ExitStatus : int {
  exit_fine = 0,
  exit_failed = 1,       ///< something went wrong that is nobody's question: a file that cannot be written, a bug
  exit_usage = 2,        ///< the command line or the job file is wrong
  exit_not_found = 3,    ///< a file, a folder or an instance type that was named is not there
  exit_unavailable = 4,  ///< Slurm is not on this machine, or does not answer
  exit_refused = 5,      ///< Slurm does not take the job
};

[[nodiscard]] constexpr int exit_status_of(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
    case Errc::mismatch:
    case Errc::limit:
      return exit_usage;
    case Errc::not_found:
      return exit_not_found;
    case Errc::unavailable:
      return exit_unavailable;
    case Errc::timeout:
    case Errc::peer:
    case Errc::aborted:
    case Errc::internal:
      break;
  }
  return exit_failed;
}

}  // namespace amldist::commands
