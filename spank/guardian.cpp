#include "spank/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/clock.hpp"
#include "os/file_descriptor.hpp"
#include "os/process_tree.hpp"
#include "step_messages/control_message.hpp"
#include "step_messages/datagram.hpp"

namespace amldist::spank {
namespace {

constexpr auto asking_interval = std::chrono::milliseconds(500);
constexpr auto patience = std::chrono::seconds(5);  ///< between SIGTERM and SIGKILL

/// Closes everything but two descriptors: pipes and sockets of slurmstepd's must end when their other users do.
void close_all_but(int one, int other) {
  const long limit = ::sysconf(_SC_OPEN_MAX);
  constexpr long most = 65536;
  const int end = static_cast<int>(std::clamp(limit, 256L, most));
  for (int descriptor = 0; descriptor < end; ++descriptor) {
    if (descriptor != one && descriptor != other) ::close(descriptor);
  }
}

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

/// What the guardian does for the rest of its life. Made before the fork, so that only the release asks for memory.
class Guardian {
 public:
  Guardian(const SrunLink& target, int socket)
      : socket_(socket),
        target_(target),
        question_(to_datagram(MessageType::may_i_end, target.channel.token)),
        release_(to_datagram(MessageType::end, target.channel.token)) {}

  /// With every signal blocked.
  [[noreturn]] void stand(pid_t child) noexcept {
    child_ = child;
    settle();
    for (;;) {
      wait();
      reap();
      if (released_at_) end_the_rest();
      else ask();
    }
  }

 private:
  void settle() {
    ::signal(SIGCHLD, SIG_DFL);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    signals_ = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    close_all_but(socket_, signals_);
  }

  /// Until something happens, or it is time to ask again. After the release srun has nothing more to say.
  void wait() const {
    constexpr int no_file = -1;
    std::array<pollfd, 2> files = {{{released_at_ ? no_file : socket_, POLLIN, 0}, {signals_, POLLIN, 0}}};
    static_cast<void>(::poll(files.data(), files.size(), static_cast<int>(asking_interval.count())));
    signalfd_siginfo ended = {};
    static_cast<void>(::read(signals_, &ended, sizeof ended));
  }

  /// Takes the ends of the program and of what it left behind; ends with the program, unless it was released.
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

  void ask() {
    const auto now = Clock::now();
    if (hears_release()) {
      released_at_ = now;
      signal_all(SIGCONT);
      signal_all(SIGTERM);
    } else if (now - asked_at_ >= asking_interval) {
      asked_at_ = now;
      send_to(target_, socket_, question_);
    }
  }

  [[nodiscard]] bool hears_release() const {
    std::array<char, longest_datagram> answer;
    const ssize_t got = ::recv(socket_, answer.data(), answer.size(), MSG_DONTWAIT);
    return got > 0 && std::string_view(answer.data(), static_cast<std::size_t>(got)) == release_;
  }

  void end_the_rest() const {
    if (Clock::now() - *released_at_ >= patience) signal_all(SIGKILL);
  }

  /// Every process of the task, as Slurm does it: a shell that waits for its program does not pass a signal on.
  void signal_all(int number) const {
    if (child_ != nobody) ::kill(child_, number);
    try {
      for (const pid_t process : descendants()) {
        if (process != child_) ::kill(process, number);
      }
    } catch (const std::exception&) {  // no memory: the program itself has been told
    }
  }

  static constexpr pid_t nobody = -1;

  pid_t child_ = nobody;
  int socket_;
  int signals_ = -1;
  SrunLink target_;
  std::string question_;
  std::string release_;
  Clock::time_point asked_at_{};
  std::optional<Clock::time_point> released_at_;
};

/// In the child: dies with its guardian, and has the signal mask of a task again.
void become_the_program(pid_t guardian, const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guardian) ::_exit(1);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

bool leave_guardian(const SrunLink& target) {
  const FileDescriptor socket = open_socket();
  if (!socket) return false;
  Guardian guardian(target, socket.get());
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  ::prctl(PR_SET_NAME, "aml-dist-guard");  // the program gets its own name from exec
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);      // what the program leaves behind stays below the guardian, and can be ended
  const pid_t own_id = ::getpid();
  const pid_t child = ::fork();
  if (child > 0) guardian.stand(child);
  if (child == 0) {
    become_the_program(own_id, before);
    return true;
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return false;
}

}  // namespace amldist::spank
