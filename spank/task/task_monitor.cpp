#include "spank/task/task_monitor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/os/inherited_descriptors.hpp"
#include "base/os/process_tree.hpp"
#include "base/time/clock.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::spank {
namespace {

constexpr auto asking_interval = std::chrono::milliseconds(500);
constexpr auto time_to_end = std::chrono::seconds(5);  ///< between SIGTERM and SIGKILL

/// Ends as the child did, so that Slurm sees the same wait status.
[[noreturn]] void end_as(int wait_status) {
  if (!WIFSIGNALED(wait_status)) ::_exit(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  ::prctl(PR_SET_DUMPABLE, 0);  // the child's core is enough
  ::signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  ::raise(number);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  constexpr int shells_offset = 128;
  ::_exit(shells_offset + number);
}

/// What the monitor does for the rest of its life. Made before the fork, so that only ending the child needs memory.
class TaskMonitor {
 public:
  TaskMonitor(const step::SrunLink& srun, step::NodeSocket socket)
      : socket_(std::move(socket)),
        token_(srun.channel.token),
        question_(to_datagram(step::MessageType::may_i_end, token_)) {}

  /// Call with every signal blocked.
  [[noreturn]] void run(pid_t child) noexcept {
    child_ = child;
    set_up();
    for (;;) {
      wait();
      reap();
      if (released_at_) end_the_rest();
      else ask_if_there_is_memory();
    }
  }

 private:
  void set_up() {
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    signals_ = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    close_all_but(socket_.descriptor(),
                  signals_);  // pipes and sockets of slurmstepd must end when their other users do
  }

  /// Until something happens, or it is time to ask again. After the release srun has nothing more to say.
  void wait() const {
    constexpr int no_file = -1;
    std::array<pollfd, 2> files = {{{released_at_ ? no_file : socket_.descriptor(), POLLIN, 0}, {signals_, POLLIN, 0}}};
    static_cast<void>(::poll(files.data(), files.size(), static_cast<int>(asking_interval.count())));
    signalfd_siginfo ended = {};
    const ssize_t got = ::read(signals_, &ended, sizeof ended);
    static_cast<void>(got);  // only empties the descriptor: waitpid() tells the rest
  }

  /// Reaps the program and what it left behind; ends with the program, unless srun has released it.
  void reap() {
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended != child_) continue;
      if (!released_at_) end_as(status);
      child_ = nobody;  // its number may be somebody else's from now on
    }
    if (ended < 0 && errno == ECHILD) ::_exit(0);  // only after the release: before it the program is there
  }

  void ask_if_there_is_memory() {
    try {
      ask();
    } catch (const std::exception&) {  // half a second later perhaps there is
    }
  }

  void ask() {
    const auto now = Clock::now();
    if (hears_release()) {
      released_at_ = now;
      signal_all(SIGCONT);
      signal_all(SIGTERM);
    } else if (now - asked_at_ >= asking_interval) {
      asked_at_ = now;
      socket_.send(question_);
    }
  }

  [[nodiscard]] bool hears_release() {
    return parse_message_type(socket_.answer(std::chrono::milliseconds(0)), token_) == step::MessageType::end;
  }

  void end_the_rest() const {
    if (Clock::now() - *released_at_ >= time_to_end) signal_all(SIGKILL);
  }

  /// Signals every process of the task, as Slurm does: a shell that waits for its program does not pass a signal on.
  void signal_all(int number) const {
    try {
      signal_descendants(number);
    } catch (const std::exception&) {                // no memory: the program itself is told
      if (child_ != nobody) ::kill(child_, number);  // nobody else waits for it
    }
  }

  static constexpr pid_t nobody = -1;

  pid_t child_ = nobody;
  step::NodeSocket socket_;
  int signals_ = -1;
  step::Token token_;
  std::string question_;
  Clock::time_point asked_at_{};
  std::optional<Clock::time_point> released_at_;
};

/// In the child: it dies with its monitor, and has the signal mask of a task again.
void become_the_program(pid_t monitor, const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != monitor) ::_exit(1);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

bool start_task_monitor(const step::SrunLink& srun) {
  step::NodeSocket socket(srun);
  if (!socket) return false;
  TaskMonitor monitor(srun, std::move(socket));
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  ::prctl(PR_SET_NAME, "aml-dist-mon");  // the program gets its own name from exec
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);    // what the program leaves behind stays below the monitor, and can be ended
  const pid_t own_id = ::getpid();
  const pid_t child = ::fork();
  if (child > 0) monitor.run(child);
  if (child == 0) {
    become_the_program(own_id, before);
    return true;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return false;
}

}  // namespace amldist::spank
