#include "base/os/answer_as_user.hpp"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <climits>
#include <csignal>

#include "base/os/inherited_descriptors.hpp"

namespace amldist {
namespace {

// A write of at most PIPE_BUF bytes is atomic.
static_assert(longest_answer_as_user < PIPE_BUF);
/// Precedes every answer, so that an empty answer differs from a missing one.
constexpr char head = '=';

/// Takes the user's rights and no others; returns whether this process has them now. Only root can and must change
/// them.
bool take_rights(const UserRights& rights) noexcept {
  if (::geteuid() == rights.user) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(rights.group, rights.group, rights.group) == 0 &&
         ::setresuid(rights.user, rights.user, rights.user) == 0;
}

/// Runs in the child until it ends.
void serve(const UserRights& rights, const std::function<std::string()>& answer, int pipe, pid_t parent) {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  constexpr int no_descriptor = -1;
  close_all_but(pipe, no_descriptor);
  if (!take_rights(rights)) return;
  ::prctl(PR_SET_DUMPABLE, 0);  // this is a copy of the parent's memory
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return;
  const std::string text = head + answer();
  if (text.size() > longest_answer_as_user + 1) return;
  const ssize_t written = ::write(pipe, text.data(), text.size());
  static_cast<void>(written);  // the reader may be gone
}

}  // namespace

std::optional<std::string> answer_as_user(UserRights rights, const std::function<std::string()>& answer,
                                          std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto copy = UserCopy::start(rights, answer);
  return copy ? copy->answer(deadline) : std::nullopt;
}

std::optional<UserCopy> UserCopy::start(UserRights rights, const std::function<std::string()>& answer) {
  auto pipe = Pipe::make();
  if (!pipe) return std::nullopt;
  const pid_t own_id = ::getpid();
  auto child = ChildProcess::fork([&] { serve(rights, answer, pipe->writing.get(), own_id); });
  if (!child) return std::nullopt;
  return UserCopy(std::move(*child), std::move(pipe->reading));
}

std::optional<std::string> UserCopy::answer(Clock::time_point deadline) const {
  const auto text = read_until_end(answer_.get(), deadline, longest_answer_as_user + 1);
  if (!text || !text->starts_with(head)) return std::nullopt;
  return text->substr(1);
}

}  // namespace amldist
