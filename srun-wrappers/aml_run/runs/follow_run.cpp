#include "aml_run/runs/follow_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "aml_run/runs/submit_run.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "shared/interrupts.hpp"
#include "shared/terminal.hpp"

namespace amldist::run {
namespace {

using commands::Interrupts;
using commands::say;
using text::concat;

constexpr std::chrono::milliseconds shortest_pause{1000};
constexpr std::chrono::milliseconds longest_pause{5000};  // many followers must not overload slurmctld
constexpr int most_silent_questions = 60;

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

}  // namespace

Result<FollowedRun> follow_run(const Run& run,
                               const std::function<std::vector<std::string>(const RunState&, bool colour)>& draw) {
  Interrupts interrupts;
  Screen screen;
  FollowedRun out;
  int silent = 0;
  bool cancelled = false;
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
    const auto signal = interrupts.wait(pause);
    pause = std::min(longest_pause, pause + pause / 8);
    if (!signal) continue;
    const auto choice =
        cancelled ? Interrupts::Choice::cancel : interrupts.choice_after(*signal, concat({"the run ", run.name}));
    screen.keep();
    if (choice == Interrupts::Choice::detach) {
      say(concat({"the run ", run.name, " goes on; aml-run --cancel ", run.name, " ends it"}));
      out.detached = true;
      return out;
    }
    if (choice == Interrupts::Choice::go_on) continue;
    say(concat({"cancelling the run ", run.name}));
    if (auto status = cancel_run(run, "cancelled"); !status) say(status.error().message, commands::Tone::bad);
    cancelled = true;
    pause = shortest_pause;
  }
}

}  // namespace amldist::run
