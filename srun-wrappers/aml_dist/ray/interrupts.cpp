#include "aml_dist/ray/interrupts.hpp"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace amldist::ray {

Interrupts::Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE}) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> Interrupts::next() const noexcept {
  signalfd_siginfo facts = {};
  while (::read(descriptor_.get(), &facts, sizeof facts) == sizeof facts) {
    if (facts.ssi_signo != SIGCHLD && facts.ssi_signo != SIGPIPE) return static_cast<int>(facts.ssi_signo);
  }
  return std::nullopt;
}

bool asks_to_end(int signal) noexcept { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

}  // namespace amldist::ray
