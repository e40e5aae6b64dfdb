#include "aml_run/runs/follow_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>

#include "aml_run/runs/submit_run.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "shared/signals.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using commands::say;
using text::concat;

constexpr std::chrono::milliseconds shortest_pause{1000};
constexpr std::chrono::milliseconds longest_pause{5000};  // many followers must not overload slurmctld
constexpr int most_silent_questions = 60;

/// Waits for a signal that interrupts.
std::optional<int> wait_for_signal(std::chrono::milliseconds time) {
  const sigset_t set = commands::HeldInterrupts::interrupts();
  const timespec limit{time.count() / 1000, (time.count() % 1000) * 1'000'000};
  const int signal = ::sigtimedwait(&set, nullptr, &limit);
  return signal > 0 ? std::optional(signal) : std::nullopt;
}

/// Lines that replace each other on a terminal.
class Screen {
 public:
  void show(const std::vector<std::string>& lines) {
    if (!terminal_) {
      for (const std::string& line : lines) {
        if (shown_.insert(line).second) std::fprintf(stderr, "aml-dist: %s\n", line.c_str());
      }
      return;
    }
    if (height_ > 0) std::fprintf(stderr, "\033[%zuA", height_);
    for (const std::string& line : lines) std::fprintf(stderr, "\033[2K%s\n", line.c_str());
    height_ = lines.size();
    std::fflush(stderr);
  }
  void keep() { height_ = 0; }
  [[nodiscard]] static bool colour() { return commands::wants_colour(STDERR_FILENO); }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::size_t height_ = 0;
  std::set<std::string> shown_;
};

/// 'y', 'n' or 'd'.
char ask_user(const Run& run) {
  std::fprintf(stderr, "\naml-dist: cancel the run %s? y: yes, d: no, but stop following it, n: no [n] ",
               run.name.c_str());
  char line[256];
  const ssize_t count = ::read(STDIN_FILENO, line, sizeof line);
  return count <= 0 ? 'd' : static_cast<char>(line[0] | 0x20);
}

}  // namespace

Result<FollowedRun> follow_run(const Run& run,
                               const std::function<std::vector<std::string>(const RunState&, bool colour)>& draw) {
  const commands::HeldInterrupts held;
  Screen screen;
  FollowedRun out;
  int silent = 0;
  std::chrono::milliseconds pause = shortest_pause;
  for (;;) {
    auto state = ask_run(run);
    if (!state && ++silent > most_silent_questions) return state.error();
    if (state) {
      silent = 0;
      out.state = std::move(*state);
      screen.show(draw(out.state, Screen::colour()));
      if (out.state.ended()) return out;
    }
    const auto signal = wait_for_signal(pause);
    pause = std::min(longest_pause, pause + pause / 8);
    if (!signal) continue;
    const bool asks = *signal == SIGINT && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
    const char choice = asks ? ask_user(run) : 'y';
    screen.keep();
    if (choice == 'd') {
      say(concat({"the run ", run.name, " goes on; aml-run --cancel ", run.name, " ends it"}));
      out.detached = true;
      return out;
    }
    if (choice != 'y') continue;
    say(concat({"cancelling the run ", run.name}));
    if (auto status = cancel_run(run, "cancelled"); !status) say(status.error().message, commands::Tone::bad);
    pause = shortest_pause;
  }
}

}  // namespace amldist::run
