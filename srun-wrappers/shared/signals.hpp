// Delays interrupts.
#pragma once

#include <csignal>

namespace amldist::commands {

/// While this object lives, SIGINT, SIGTERM and SIGHUP stay pending; programs that are started get them as usual.
class HeldInterrupts {
 public:
  HeldInterrupts() noexcept {
    const sigset_t set = interrupts();
    ::sigprocmask(SIG_BLOCK, &set, &before_);
  }
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;
  ~HeldInterrupts() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] static sigset_t interrupts() noexcept {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
    return set;
  }

 private:
  sigset_t before_{};
};

}  // namespace amldist::commands
