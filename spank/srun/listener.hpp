// Where srun receives the messages of its step's nodes: a socket, and a thread that reports the first failure and
// answers questions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "launch/site/trace_policy.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::spank {

/// Opens its port before the launch, so that the nodes can be told; starts its thread once the step exists. Prints one
/// line when a task has failed. Answers nodes that ask for the launch record or the master's address
/// (step/messages/control_message.hpp), and the task monitors of a parameter-server step
/// (step/messages/server_release.hpp). Under hang= it weighs what the nodes tell of their ranks (hang_detector.hpp),
/// says when the step hangs, and ends it if the user wants that: SIGTERM first, SIGKILL after KillWait, and srun's exit
/// status is 75.
///
/// The line comes about a second after the first report, because a step without --kill-on-bad-exit may hang for hours
/// afterwards; or when srun ends, if that is earlier. There is no line for a step that something else ended (scancel of
/// the job, its time limit, preemption, requeue): slurmctld changes the job's state before the tasks are signalled. Nor
/// for a step at a time limit of its own. slurmctld does not tell that a single step was cancelled; then the line says
/// what was seen, all tasks killed alike. While no task fails, the thread sleeps.
class Listener {
 public:
  /// Takes a port, from the site's SrunPortRange where there is one. `job_record`: a file that gets the line about the
  /// first failure too (step/messages/job_record.hpp); empty: none. Errors: unavailable.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(std::string job_record);

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Prints the line if it is still due, and ends the thread.
  ~Listener();

  [[nodiscard]] const step::ReportChannel& channel() const noexcept { return channel_; }

  /// The step whose messages come.
  struct Step {
    std::uint32_t job_id = 0;
    std::uint32_t step_id = 0;
    std::uint32_t tasks = 0;         ///< 0: not known
    std::string record = {};         ///< the launch record, for nodes that ask; empty: none
    launch::TraceChoice trace = {};  ///< whether the step is watched for hangs, and what follows
    bool comments = false;           ///< the job's comment gets the line too (job_comment.hpp)
  };
  /// Starts the thread. Without one (no memory) the feature is absent. Once.
  void watch(Step step) noexcept;

 private:
  Listener(FileDescriptor socket, FileDescriptor stop, step::ReportChannel channel, std::string job_record) noexcept;

  FileDescriptor socket_;
  FileDescriptor stop_;  ///< an eventfd; readable: srun ends
  step::ReportChannel channel_;
  std::string job_record_;
  std::thread thread_;
};

}  // namespace amldist::spank
