// Where the messages of a step's nodes arrive: a socket and a thread in srun; or in the slurmstepd of one node, the
// stand-in for an srun that has ended or does not answer any more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/datagram_socket.hpp"
#include "base/os/answer_as_user.hpp"
#include "base/os/quiet_thread.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/site/trace_policy.hpp"
#include "spank/slurm/slurm_headers.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::spank {

/// Nodes of the step, and the step as their slurmds know it.
struct ServedNodes {
  Hostlist names;
  std::uint32_t job_id = 0;
  std::uint32_t component = NO_VAL;  ///< NO_VAL, unless the step has several components in one job
};

/// The step that is served, and what the server may do about it.
struct ServedStep {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::uint32_t tasks = 0;                     ///< 0: not known
  std::uint32_t nodes = 0;                     ///< 0: not known
  std::vector<ServedNodes> hosts = {};         ///< that must report before any task starts; empty: not known, none need
  std::size_t variables = 0;                   ///< of srun's environment
  std::string record = {};                     ///< the launch record, for nodes that ask; empty: none
  std::string (*why_unsent)() = nullptr;       ///< why the record is no longer in srun's environment; empty: it is
  launch::TraceChoice trace = {};              ///< whether the step is watched for hangs, and what follows
  std::optional<launch::StopWish> stop = {};   ///< when the ranks are asked to stop
  bool verbose = false;                        ///< srun says at the end which datagrams it dropped
  bool comments = false;                       ///< the job's comment gets the line too (job_comment.hpp)
  std::optional<bool> kills_on_bad_exit = {};  ///< as srun was told; nullopt: as slurm.conf has it
  std::vector<std::string> record_files = {};  ///< that get the record of the end (step/messages/end_record.hpp)
  /// Of the step's user, in root's process: files and slurmctld are for a process of that user's, which is killed after
  /// some seconds. nullopt in srun, whose user that is.
  std::optional<UserRights> rights = {};
  std::string folder =
      {};  ///< of the tasks, for a stand-in: relative to it are the files, and it gets the report on a hang
};

/// Ends a step of which a node has started tasks without aml-dist (step/server/roll_call.hpp), and lets the others
/// start theirs otherwise. Answers the nodes (message_server.hpp) and prints one line when a task has failed. Under
/// hang= it weighs what the nodes tell of their ranks (hang_detector.hpp), says when the step hangs, and ends it if the
/// user wants that: SIGTERM first, SIGKILL after KillWait, and srun's exit status is 75.
///
/// The line comes about a second after the first report, because a step without --kill-on-bad-exit may hang for hours
/// afterwards; or when srun ends, if that is earlier. There is no line for a step that something else ended (scancel of
/// the job, its time limit, preemption, requeue): slurmctld changes the job's state before the tasks are signalled. Nor
/// for a step at a time limit of its own. slurmctld does not tell that a single step was cancelled; then the line says
/// what was seen, all tasks killed alike. While no task fails, the thread sleeps.
///
/// Under stop= it asks slurmctld for the time limit, tells the nodes how long it is until the stop (stop_timer.hpp),
/// and sends the key's signal when it is time.
///
/// Datagrams that are not of the step are dropped and counted (step/server/inbox.hpp): srun says how many if it is
/// verbose, a stand-in in the node's log. A stand-in takes nothing but messages with the step's code, which the strict
/// parsers of step/messages/ read, and its memory is bounded by the step's size. Under hang= it ends the step as srun
/// does; otherwise it never does.
class StepServer {
 public:
  /// UDP ports to choose from, first and last; 0: any that is free.
  using Ports = std::pair<std::uint16_t, std::uint16_t>;
  /// Takes a port. Messages that come from now on are kept by the kernel, and who asks asks again. Errors: unavailable,
  /// with the reason.
  [[nodiscard]] static Result<std::unique_ptr<StepServer>> open(Ports ports, const step::Token& token);

  /// Starts the thread. Where lines for the user go must be open: slurmstepd opens the step's output between SPANK's
  /// init_post_opt and its task_post_fork. Without a thread (no memory) nothing is reported or answered. Later calls do
  /// nothing.
  void serve(ServedStep step) noexcept;

  StepServer(const StepServer&) = delete;
  StepServer& operator=(const StepServer&) = delete;
  /// Prints the line if it is still due, and ends the thread. In slurmstepd it first answers nodes that still ask:
  /// seven seconds at most, whatever comes.
  ~StepServer() = default;

  [[nodiscard]] const step::ReportChannel& channel() const noexcept { return channel_; }

 private:
  StepServer(DatagramSocket socket, step::ReportChannel channel) noexcept;

  DatagramSocket socket_;
  step::ReportChannel channel_;
  QuietThread thread_;
};

}  // namespace amldist::spank
