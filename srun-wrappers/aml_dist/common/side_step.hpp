// A short step on the nodes of a running one, beside it: how `stop` and `trace` reach each node, by Slurm's own means.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/text/result.hpp"
#include "shared/programs.hpp"

namespace amldist::tools {

/// A job as squeue knows it.
struct QueuedJob {
  std::string number;   ///< also of an array's task: its recorders and stop files bear it
  std::string name;     ///< "12", or "12_3" of an array's task: the number of the last one is also the array's
  std::string user_id;  ///< whose it is
  std::string user;
};

/// The job that is named so: "12", "12_3", "12+1". Of an array by its number it is the task with this number if
/// `by_number`, else an error. Errors: not_found, no such job runs; invalid_argument, several do; unavailable, squeue
/// is not there or says nothing.
[[nodiscard]] Result<QueuedJob> find_job(const std::string& name, bool by_number);

/// The steps of a job that users start and that run now: the host list of each, by its number. The batch script's and
/// Slurm's own steps have names in place of numbers. Errors: unavailable, squeue is not there.
[[nodiscard]] Result<std::map<std::string, std::string>> running_steps(const QueuedJob& job);

/// Runs `aml-dist ARGUMENTS` once on each of the nodes `hosts` of step "JOB.STEP", and waits. It needs nothing of what
/// the running step holds. Variables of a job around this process are removed from this process's environment, since
/// they would shape the step. At most `most` bytes of output are kept. Errors: unavailable, invalid_argument (no host
/// list).
[[nodiscard]] Result<commands::Finished> run_beside(const std::string& step, const std::string& hosts,
                                                    const std::vector<std::string>& arguments,
                                                    std::size_t most = commands::longest_capture,
                                                    bool has_labels = false);

/// The last line that a program has written to its standard error, for a sentence; empty without one.
[[nodiscard]] std::string last_line_of(const std::string& text);

}  // namespace amldist::tools
