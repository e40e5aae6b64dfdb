// Exit statuses of `aml-dist`, as the man page documents them.
#pragma once

namespace amldist::tools {

enum ExitStatus : int {
  exit_fine = 0,
  exit_failed = 1,   ///< well asked, but the answer is an error: a refused layout, a file that cannot be read
  exit_usage = 2,    ///< asked wrongly
  exit_skipped = 3,  ///< check: nothing to verify
};

}  // namespace amldist::tools
