// What takes srun's place in a step that no srun waits for: a socket and a thread in the slurmstepd of one node.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <thread>

#include "base/os/answer_as_user.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::spank {

/// Answers the step's nodes as srun would (message_server.hpp), and says in the step's output which task failed first.
/// It does not watch for hangs, end the step, or write to the job's comment: these are srun's, with its user's rights.
///
/// It lives in root's process. So it takes nothing but datagrams with the step's token, which the strict parsers of
/// step_messages/ read; memory is bounded by the step's size; and slurmctld is asked in a process of the user's that is
/// killed after two seconds.
class FallbackServer {
 public:
  struct Step {
    std::uint64_t token = 0;
    std::uint32_t job_id = 0;
    std::uint32_t tasks = 0;
    std::uint32_t nodes = 0;
    UserRights rights;  ///< the step's user
  };

  /// Takes a UDP port, and starts a thread that waits for begin(): what comes before is kept by the kernel, and who
  /// asks asks again. Errors: unavailable, with the reason.
  [[nodiscard]] static Result<std::unique_ptr<FallbackServer>> open(std::uint16_t port, Step step);

  /// Answers from here on. To be called when what this process prints reaches the step's output, which slurmstepd opens
  /// between SPANK's init_post_opt and its task_post_fork: a line before that would be in slurmd's log. Any number of
  /// calls.
  void begin() const noexcept;

  FallbackServer(const FallbackServer&) = delete;
  FallbackServer& operator=(const FallbackServer&) = delete;
  /// Says what is still due, answers nodes that still ask, and ends: seven seconds at most, whatever comes. In a forked
  /// child it only closes its descriptors.
  ~FallbackServer();

 private:
  FallbackServer(FileDescriptor socket, FileDescriptor begin, FileDescriptor stop) noexcept;

  FileDescriptor socket_;
  FileDescriptor begin_;  ///< an eventfd; readable: the step's output is there
  FileDescriptor stop_;   ///< an eventfd; readable: this node's tasks have ended
  std::unique_ptr<std::thread> thread_;
  pid_t holder_ = ::getpid();
};

}  // namespace amldist::spank
