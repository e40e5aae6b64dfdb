// srun's side of what its nodes report: a socket, and a thread that says who failed first and tells servers when the
// step is over.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "core/file_descriptor.hpp"
#include "core/result.hpp"
#include "rendezvous/failure_report.hpp"

namespace amldist::spank {

/// Opened before the launch, so that the nodes can be told where; watches once the step exists. Says one line, when a
/// task has failed. Answers the guardians of a parameter-server step (rendezvous/server_release.hpp).
///
/// The line is said as soon as it is certain, about a second after the first report, because a step without
/// --kill-on-bad-exit may hang for hours afterwards; or when srun ends, if that comes earlier. A step that somebody or
/// something else ended (scancel of the job, its time limit, preemption, requeue) is recognised by the job's state in
/// slurmctld, which changes before the tasks are told, and gets no line; so does a step at a time limit of its own. Of
/// a single step that was cancelled slurmctld tells nobody, and the line says what was seen: all tasks killed alike.
/// While no task fails the thread sleeps.
class FailureListener {
 public:
  /// Takes a port, from the site's SrunPortRange where there is one. Errors: unavailable.
  [[nodiscard]] static Result<std::unique_ptr<FailureListener>> open();

  FailureListener(const FailureListener&) = delete;
  FailureListener& operator=(const FailureListener&) = delete;
  /// Says what is still to be said and ends the thread.
  ~FailureListener();

  [[nodiscard]] const ReportChannel& channel() const noexcept { return channel_; }

  /// The step to watch.
  struct Step {
    std::uint32_t job_id = 0;
    std::uint32_t step_id = 0;
    std::uint32_t tasks = 0;  ///< 0: not known
  };
  /// Starts the thread. Without one (no memory) the feature is absent. Once.
  void watch(const Step& step) noexcept;

 private:
  FailureListener(FileDescriptor socket, FileDescriptor stop, ReportChannel channel) noexcept;

  FileDescriptor socket_;
  FileDescriptor stop_;  ///< an eventfd; readable: srun ends
  ReportChannel channel_;
  std::thread thread_;
};

}  // namespace amldist::spank
