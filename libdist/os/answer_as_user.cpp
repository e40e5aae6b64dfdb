#include "os/answer_as_user.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <string_view>

#include "os/file_descriptor.hpp"
#include "os/inherited_descriptors.hpp"

namespace amldist {
namespace {

using std::chrono::steady_clock;

// One write of at most PIPE_BUF bytes is whole or not there at all.
static_assert(longest_answer_as_user < PIPE_BUF);
/// Stands before every answer: an empty one is told from none.
constexpr char head = '=';

/// Whether this process has the user's rights now, and no others. Only root can and need change them.
bool become(const UserRights& rights) noexcept {
  if (::geteuid() == rights.user) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(rights.group, rights.group, rights.group) == 0 &&
         ::setresuid(rights.user, rights.user, rights.user) == 0;
}

/// The child's whole life.
[[noreturn]] void serve(const UserRights& rights, const std::function<std::string()>& answer, int pipe,
                        pid_t parent) noexcept {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  constexpr int none = -1;
  close_all_but(pipe, none);
  if (!become(rights)) ::_exit(1);
  ::prctl(PR_SET_DUMPABLE, 0);  // this is a copy of the parent's memory
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    const std::string text = head + answer();
    if (text.size() <= longest_answer_as_user + 1) static_cast<void>(::write(pipe, text.data(), text.size()));
  } catch (...) {  // no memory: no answer
  }
  ::_exit(0);
}

/// Waits for the answer's one write; nullopt if the other end closes without it or the time is over.
std::optional<std::string> read_answer(int pipe, steady_clock::time_point deadline) {
  std::array<char, longest_answer_as_user + 1> buffer{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd wanted = {pipe, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wanted, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = ready > 0 ? ::read(pipe, buffer.data(), buffer.size()) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || buffer.front() != head) return std::nullopt;
    return std::string(std::string_view(buffer.data(), static_cast<std::size_t>(got)).substr(1));
  }
}

/// Ends and reaps the child. One that not even SIGKILL ends, because its file system holds it, is left to whoever reaps
/// the children of this process in the end.
void end_child(pid_t child) noexcept {
  static_cast<void>(::kill(child, SIGKILL));
  constexpr int attempts = 100;
  constexpr int pause_ms = 1;
  for (int i = 0; i < attempts; ++i) {
    const pid_t ended = ::waitpid(child, nullptr, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return;
    static_cast<void>(::poll(nullptr, 0, pause_ms));
  }
}

}  // namespace

std::optional<std::string> answer_as_user(UserRights rights, const std::function<std::string()>& answer,
                                          std::chrono::milliseconds timeout) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t own_id = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) serve(rights, answer, writing.get(), own_id);
  if (child < 0) return std::nullopt;
  writing = FileDescriptor();
  auto text = read_answer(reading.get(), steady_clock::now() + timeout);
  end_child(child);
  return text;
}

}  // namespace amldist
