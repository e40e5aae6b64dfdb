// srun's ear for the nodes of its step: a socket, and a thread that says who failed first and answers what they ask.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "core/result.hpp"
#include "os/file_descriptor.hpp"
#include "step_messages/failure_report.hpp"

namespace amldist::spank {

/// Opened before the launch, so that the nodes can be told where; watches once the step exists. Says one line, when a
/// task has failed. Answers nodes that ask for the launch record or the master's address (rendezvous/conversation.hpp),
/// and the guardians of a parameter-server step (rendezvous/server_release.hpp).
///
/// The line is said as soon as it is certain, about a second after the first report, because a step without
/// --kill-on-bad-exit may hang for hours afterwards; or when srun ends, if that comes earlier. A step that somebody or
/// something else ended (scancel of the job, its time limit, preemption, requeue) is recognised by the job's state in
/// slurmctld, which changes before the tasks are told, and gets no line; so does a step at a time limit of its own. Of
/// a single step that was cancelled slurmctld tells nobody, and the line says what was seen: all tasks killed alike.
/// While no task fails the thread sleeps.
class Listener {
 public:
  /// Takes a port, from the site's SrunPortRange where there is one. `job_record`: a file that gets the line about the
  /// first failure too (core/job_record.hpp); empty: none. Errors: unavailable.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(std::string job_record);

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Says what is still to be said and ends the thread.
  ~Listener();

  [[nodiscard]] const ReportChannel& channel() const noexcept { return channel_; }

  /// The step to watch.
  struct Step {
    std::uint32_t job_id = 0;
    std::uint32_t step_id = 0;
    std::uint32_t tasks = 0;  ///< 0: not known
    std::string record = {};  ///< for nodes that ask; empty: none
  };
  /// Starts the thread. Without one (no memory) the feature is absent. Once.
  void watch(Step step) noexcept;

 private:
  Listener(FileDescriptor socket, FileDescriptor stop, ReportChannel channel, std::string job_record) noexcept;

  FileDescriptor socket_;
  FileDescriptor stop_;  ///< an eventfd; readable: srun ends
  ReportChannel channel_;
  std::string job_record_;
  std::thread thread_;
};

}  // namespace amldist::spank
