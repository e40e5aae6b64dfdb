// A Slurm job: submits, queries and cancels it through Slurm's own programs, so that every release and every site's
// plugins behave as the user expects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

struct Submitted {
  std::string id;        ///< "17", as sbatch prints it
  std::string messages;  ///< the rest of sbatch's output
};

/// A failed submission: its exit status and the message.
struct Refusal {
  int status;
  std::string message;
};

/// A job as slurmctld or the accounting describes it.
struct JobState {
  std::string state;           ///< PENDING, RUNNING, COMPLETED, ...
  std::string reason;          ///< Priority, Resources, ...; None: no reason
  std::string nodes;           ///< "node[1-2]", or empty
  std::string output;          ///< file of its standard output
  std::string error;           ///< file of its standard error, often the same
  std::string folder;          ///< in which it works; empty if from the accounting
  int exit_status = 0;         ///< of the batch script
  int signal = 0;              ///< that ended it
  std::uint32_t restarts = 0;  ///< how often it was requeued; 0 if from the accounting
  /// Of an array that is asked for as a whole: its tasks ("6_1"), each with its state; else empty.
  std::vector<std::pair<std::string, std::string>> tasks = {};

  [[nodiscard]] bool ended() const;
};

/// Gives the script to sbatch, or to sbatch with further options.
[[nodiscard]] std::variant<Submitted, Refusal> submit(const std::string& script,
                                                      const std::vector<std::string>& sbatch = {"sbatch",
                                                                                                "--parsable"});

/// Asks slurmctld, and the accounting if slurmctld has forgotten the job. Of an array the state is that of a task that
/// has not ended, if there is one. `id`: "6", or "6_3" for a task of an array. Errors: not_found (neither knows it),
/// unavailable (no answer).
[[nodiscard]] Result<JobState> ask(const std::string& id);

/// Whether a job that waits for this reason can never start as it is.
[[nodiscard]] bool is_hopeless(std::string_view reason);

/// The warning about a job that was just submitted and can never start; empty if it can.
[[nodiscard]] std::string why_never(const std::string& id, const JobState& state);

/// Reads what `scontrol show job` prints.
[[nodiscard]] std::optional<JobState> read_scontrol(std::string_view text);

/// scancel.
[[nodiscard]] Result<void> cancel(const std::string& id);

/// The exit status of an ended job: that of its script; 128 + signal; 124 out of time, 137 out of memory, 130
/// cancelled, 1 if the cause lies outside of it.
[[nodiscard]] int exit_status_of(const JobState& state);

}  // namespace amldist::run
