#include "base/os/answer_as_user.hpp"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <climits>
#include <csignal>

#include "base/os/child_process.hpp"
#include "base/os/inherited_descriptors.hpp"

namespace amldist {
namespace {

// One write of at most PIPE_BUF bytes is whole or not there at all.
static_assert(longest_answer_as_user < PIPE_BUF);
/// Stands before every answer: an empty one is told from none.
constexpr char head = '=';

/// Whether this process has the user's rights now, and no others. Only root can and need change them.
bool take_rights(const UserRights& rights) noexcept {
  if (::geteuid() == rights.user) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(rights.group, rights.group, rights.group) == 0 &&
         ::setresuid(rights.user, rights.user, rights.user) == 0;
}

/// The child's whole life.
void serve(const UserRights& rights, const std::function<std::string()>& answer, int pipe, pid_t parent) {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  constexpr int none = -1;
  close_all_but(pipe, none);
  if (!take_rights(rights)) return;
  ::prctl(PR_SET_DUMPABLE, 0);  // this is a copy of the parent's memory
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return;
  const std::string text = head + answer();
  if (text.size() > longest_answer_as_user + 1) return;
  const ssize_t written = ::write(pipe, text.data(), text.size());
  static_cast<void>(written);  // a reader that is gone needs no answer
}

}  // namespace

std::optional<std::string> answer_as_user(UserRights rights, const std::function<std::string()>& answer,
                                          std::chrono::milliseconds timeout) {
  auto pipe = Pipe::make();
  if (!pipe) return std::nullopt;
  const auto deadline = Clock::now() + timeout;
  const pid_t own_id = ::getpid();
  const auto child = ChildProcess::fork([&] { serve(rights, answer, pipe->writing.get(), own_id); });
  if (!child) return std::nullopt;
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), deadline, longest_answer_as_user + 1);
  if (!text || !text->starts_with(head)) return std::nullopt;
  return text->substr(1);
}

}  // namespace amldist
