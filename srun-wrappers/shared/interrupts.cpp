#include "shared/interrupts.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

namespace amldist::commands {

Interrupts::Interrupts() {
  const sigset_t set = HeldInterrupts::interrupts();
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> Interrupts::wait(std::chrono::milliseconds time) {
  pollfd end{descriptor_.get(), POLLIN, 0};
  if (::poll(&end, 1, static_cast<int>(time.count())) <= 0) return std::nullopt;
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

Interrupts::Choice Interrupts::choice_after(int signal, std::string_view what) {
  if (signal != SIGINT || ::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1) return Choice::cancel;
  std::fprintf(stderr, "\naml-dist: cancel %.*s? y: yes, d: no, but stop following it, n: no [n] ",
               static_cast<int>(what.size()), what.data());
  std::array<pollfd, 2> ends = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{descriptor_.get(), POLLIN, 0}};
  while (::poll(ends.data(), ends.size(), -1) < 0) {
  }
  if (ends[1].revents != 0) {
    wait(std::chrono::milliseconds(0));
    std::fputc('\n', stderr);
    return Choice::cancel;
  }
  std::array<char, 256> line{};
  if (::read(STDIN_FILENO, line.data(), line.size()) <= 0) return Choice::detach;
  const char answer = static_cast<char>(line[0] | 0x20);
  return answer == 'y' ? Choice::cancel : answer == 'd' ? Choice::detach : Choice::go_on;
}

}  // namespace amldist::commands
