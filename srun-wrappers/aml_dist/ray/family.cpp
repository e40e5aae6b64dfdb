#include "aml_dist/ray/family.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/os/process_tree.hpp"
#include "base/time/clock.hpp"
#include "shared/terminal.hpp"

namespace amldist::ray {
namespace {

void reap() noexcept {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
}

std::vector<pid_t> family() {
  reap();
  return descendants();
}

void signal_all(const std::vector<pid_t>& processes, int signal) noexcept {
  for (const pid_t each : processes) static_cast<void>(::kill(each, signal));
}

/// In the child, before its program.
void prepare(const Member& member, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  if (member.own_group) ::setpgid(0, 0);
  sigset_t nothing;
  sigemptyset(&nothing);
  ::sigprocmask(SIG_SETMASK, &nothing, nullptr);
  if (member.output >= 0) {
    ::dup2(member.output, STDOUT_FILENO);
    ::dup2(member.output, STDERR_FILENO);
  }
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void reap_orphans(std::initializer_list<pid_t> awaited) noexcept {
  for (;;) {
    siginfo_t end = {};
    if (::waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0) return;
    if (std::ranges::find(awaited, end.si_pid) != awaited.end()) return;  // the rest follows when that is taken
    static_cast<void>(::waitpid(end.si_pid, nullptr, WNOHANG));
  }
}

Result<ChildProcess> start(const Member& member) {
  const pid_t parent = ::getpid();
  return ChildProcess::fork([&] {
    prepare(member, parent);
    ::clearenv();
    // putenv() takes what it does not write to as char*.
    for (const std::string& each : member.environment) ::putenv(const_cast<char*>(each.c_str()));
    const Error error = become(member.words);
    commands::say("ray: " + error.message);
    ::_exit(error.code == Errc::not_found ? 127 : 126);
  });
}

std::size_t end_family(std::chrono::milliseconds grace) {
  constexpr auto tick = std::chrono::milliseconds(20);
  constexpr auto patience = std::chrono::seconds(20);  // a process in an uninterruptible call is left to Slurm
  const std::vector<pid_t> all = family();
  signal_all(all, SIGTERM);
  signal_all(all, SIGCONT);
  const auto start = Clock::now();
  for (auto left = family(); !left.empty() && Clock::now() < start + patience; left = family()) {
    if (Clock::now() >= start + grace) signal_all(left, SIGKILL);
    std::this_thread::sleep_for(tick);
  }
  return all.size();
}

}  // namespace amldist::ray
