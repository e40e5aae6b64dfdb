// Which task failed first: what nodes report to srun about failed tasks, and the one line that srun prints.
//
// srun listens on a UDP port and passes port and token to the nodes in one variable:
//
//   SLURM_AMLDIST_REPORT=2;port=40123;token=00c0ffee00c0ffee5ca1ab1e5ca1ab1e
//
// A node sends a report of each failed task, when its slurmstepd has reaped the task, until srun answers `heard`:
//
//   aml-dist;1;00c0ffee00c0ffee;failed;2;0;9;1234;node2        rank, local rank, wait status, milliseconds, host
//
// If the task's flight recorder has a last call, one more field follows: "in allreduce #42 (1048576 float32, 4 MiB)".
// If another rank broke that call, the task ended as a consequence; the other rank's node may report a moment later.
//
// What the node found out about the cause (step/cause/) follows, at most three findings of two fields each:
//
//   ...;node2;;out_of_memory;the step may use 300 GiB on this node and used it
//
// Under trace a node also reports a task that ended with status 0 without MPI_Finalize, with its last call. That is not
// a failure, but a PMIx server kills the others for it.
//
// Datagrams may be lost, duplicated, repeated or forged (datagram.hpp). Slurm kills the rest of a step only
// after srun has learned of the first death, and a node sends its report before it tells Slurm's srun. So the cause
// arrives before Slurm's victims.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "step/cause/cause.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/end_record.hpp"

namespace amldist::step {

inline constexpr const char* report_variable = "SLURM_AMLDIST_REPORT";

/// Where srun listens, and the key that it shares with the nodes of its step.
struct ReportChannel {
  std::uint16_t port = 0;
  Token token = {};

  [[nodiscard]] std::string to_string() const;
  /// nullopt for a text that to_string() cannot have written.
  [[nodiscard]] static std::optional<ReportChannel> parse(std::string_view text);

  friend bool operator==(const ReportChannel&, const ReportChannel&) = default;
};

/// The end of one task, as its node saw it.
struct FailureReport {
  enum class Kind {
    failed,   ///< the task ended with a signal or a status other than 0
    refused,  ///< aml-dist refused to start it and has printed the reason
  };
  Kind kind = Kind::failed;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t wait_status = 0;  ///< as waitpid(2) gives it
  std::uint64_t elapsed_ms = 0;   ///< since the step's start on that node
  std::string host;
  std::string last_call = {};      ///< text of trace::describe_last_call(); empty: unknown
  std::vector<Cause> causes = {};  ///< each of another kind, most_causes at most

  static constexpr std::size_t most_causes = 3;

  /// The text of the cause of this kind; nullptr if the report has no such cause.
  [[nodiscard]] const std::string* text_of(Cause::Kind wanted) const noexcept;
  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<FailureReport> parse(std::string_view datagram, std::uint64_t token);

  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// Whether a wait status means failure.
[[nodiscard]] constexpr bool is_failure(std::uint32_t wait_status) noexcept { return wait_status != 0; }

/// "signal 9 (SIGKILL)", "signal 11 (SIGSEGV), core dumped", "exit status 7", "exit status 134 (128 + SIGABRT)".
[[nodiscard]] std::string describe_end(std::uint32_t wait_status);

/// What is known about the rest of the step when the line is printed.
struct RestOfStep {
  bool runs = false;              ///< some tasks still run
  bool kill_on_bad_exit = false;  ///< Slurm ends the step when one task fails
  bool has_srun = true;           ///< false: --kill-on-bad-exit is an option of srun and would have no effect
  bool has_mpi = true;  ///< a rank has made calls of MPI, whose servers and calls end the ranks that another has left
};

/// What recorders tell about the first of several ends.
struct RecordedCause {
  /// For which the others waited when they ended, or whose call is wrong; empty: `wrong_call` names several, of which
  /// all or some are wrong.
  std::vector<std::uint32_t> ranks;
  std::string node;    ///< of the first of them; empty: not known
  std::string source;  ///< of the calls: "mpi", "amldist", ...
  /// "broadcast #28 (...): rank 2 (local 0) on node2 called allreduce #28 (...) instead"; empty: they have ended in no
  /// wrong call.
  std::string wrong_call;

  friend bool operator==(const RecordedCause&, const RecordedCause&) = default;
};

/// Keeps the first report to arrive, prefers a cause to a consequence, and counts. Memory: one report of each of a
/// bounded number of tasks, and one bit per task.
class FirstFailure {
 public:
  /// `tasks`: of the whole step; 0: unknown.
  explicit FirstFailure(std::uint32_t tasks) : alike_(tasks) {}

  void take(const FailureReport& report);

  /// Whether there is a failure to print: a task failed, and no node refused the step.
  [[nodiscard]] bool stands() const noexcept { return first_.has_value() && !is_refused(); }

  /// The node that refused the step; empty if no node has.
  [[nodiscard]] const std::string& refusing_node() const noexcept { return refused_by_; }
  [[nodiscard]] bool is_refused() const noexcept { return !refused_by_.empty(); }

  /// For a step that Slurm ended: the report of the first rank that ran out of memory or lost a process: "rank 5
  /// (local 1) on node3: the kernel killed its process ...". Empty if no rank reported that.
  [[nodiscard]] const std::string& memory_note() const noexcept { return memory_note_; }

  /// As a record without step and time. `recorded`: what the ranks' recorders say; it counts where the first report may
  /// be of a rank that ended because of another. Only valid if stands() is true.
  [[nodiscard]] EndRecord record(const RestOfStep& rest, const std::optional<RecordedCause>& recorded = {}) const;

 private:
  void take_unfinished(const FailureReport& report);
  void note_memory(const FailureReport& report);
  void count_if_alike(const FailureReport& report);
  [[nodiscard]] bool is_earlier_cause(const FailureReport& report) const;
  [[nodiscard]] bool has_unfinished_cause(bool has_mpi) const;
  [[nodiscard]] bool may_be_consequence() const;
  [[nodiscard]] const FailureReport* recorded_cause(const RecordedCause& recorded) const;
  [[nodiscard]] bool is_cancelled(const RestOfStep& rest) const;
  [[nodiscard]] bool are_all_alike(const FailureReport& cause) const;
  /// False, too, where the number of tasks is not known or too large for all reports to be kept.
  [[nodiscard]] bool have_all_failed() const noexcept { return !alike_.empty() && ends_.size() == alike_.size(); }
  [[nodiscard]] std::string description(const FailureReport& cause, const RestOfStep& rest,
                                        std::string_view last_call) const;
  [[nodiscard]] std::string clause(const FailureReport& cause, const RestOfStep& rest) const;

  std::optional<FailureReport> first_;
  std::optional<FailureReport> unfinished_;      ///< ended with status 0 without MPI_Finalize, no later than first_
  std::map<std::uint32_t, FailureReport> ends_;  ///< by rank
  std::string refused_by_;
  std::string memory_note_;
  std::vector<bool> alike_;  ///< ranks that ended in the same way as the first
  std::size_t alike_count_ = 0;
};

}  // namespace amldist::step
