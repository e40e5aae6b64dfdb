// Who died first: what nodes tell srun about tasks that failed, and the one line that srun makes of it.
//
// srun listens on a UDP port and hands port and token to the nodes in one variable:
//
//   SLURM_AMLDIST_REPORT=1;port=40123;token=00c0ffee00c0ffee
//
// A node sends one datagram for each task that failed, when its slurmstepd has reaped it:
//
//   aml-dist;1;00c0ffee00c0ffee;failed;2;0;9;1234;node2        rank, local rank, wait status, milliseconds, host
//
// and, where the task's flight recorder tells, one field more: "in allreduce #42 (1048576 float32, 4 MiB)". A task
// whose call was broken by another rank ended because of that one's end, which its own node may tell a moment later.
//
// Datagrams may be lost, come twice, or come from anybody; the token tells ours, and everything else is dropped. Slurm
// kills the rest of a step only after srun has heard of the first death, and a node reports a death before it tells
// Slurm's srun of it; so the order of arrival puts the cause before Slurm's victims.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist {

inline constexpr const char* report_variable = "SLURM_AMLDIST_REPORT";

/// Where srun listens, and the secret that its step's nodes share.
struct ReportChannel {
  std::uint16_t port = 0;
  std::uint64_t token = 0;

  [[nodiscard]] std::string to_string() const;
  /// nullopt for a text that to_string() cannot have written.
  [[nodiscard]] static std::optional<ReportChannel> parse(std::string_view text);

  friend bool operator==(const ReportChannel&, const ReportChannel&) = default;
};

/// One task's end as its node saw it.
struct FailureReport {
  enum class Kind {
    failed,   ///< the task ended with a signal or a status other than 0
    refused,  ///< aml-dist did not let it start; the user has read why
  };
  Kind kind = Kind::failed;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::uint32_t wait_status = 0;  ///< as waitpid(2) gives it
  std::uint64_t elapsed_ms = 0;   ///< since the step's start on that node
  std::string host;
  std::string last_call = {};  ///< as collective::describe_last_call() says it; empty: not known

  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<FailureReport> parse(std::string_view datagram, std::uint64_t token);

  friend bool operator==(const FailureReport&, const FailureReport&) = default;
};

/// Whether a wait status means failure.
[[nodiscard]] constexpr bool is_failure(std::uint32_t wait_status) noexcept { return wait_status != 0; }

/// "signal 9 (SIGKILL)", "signal 11 (SIGSEGV), core dumped", "exit status 7", "exit status 134 (128 + SIGABRT)".
[[nodiscard]] std::string describe_end(std::uint32_t wait_status);

/// What is known about the rest of the step when the line is written.
struct RestOfStep {
  bool runs = false;              ///< tasks still run
  bool kill_on_bad_exit = false;  ///< Slurm ends the step when one task fails
};

/// Keeps the first report by arrival, but prefers a cause to a consequence, and counts. Memory: one report and one bit
/// for each task.
class FirstFailure {
 public:
  /// `tasks`: of the whole step; 0 when not known.
  explicit FirstFailure(std::uint32_t tasks) : alike_(tasks) {}

  void take(const FailureReport& report);

  /// Whether there is something to say: a task failed, and no node refused the step.
  [[nodiscard]] bool stands() const noexcept { return first_.has_value() && !refused_; }

  /// The line, without "aml-dist: ". Only when it stands.
  [[nodiscard]] std::string sentence(const RestOfStep& rest) const;

 private:
  [[nodiscard]] bool is_earlier_cause(const FailureReport& report) const;
  [[nodiscard]] std::string clause(const RestOfStep& rest) const;

  std::optional<FailureReport> first_;
  bool refused_ = false;
  std::vector<bool> alike_;  ///< ranks that ended as the first did
  std::size_t alike_count_ = 0;
};

}  // namespace amldist
