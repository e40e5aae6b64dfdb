// Tells the time in which a process ran from the time in which it was stopped (SIGSTOP, scontrol suspend): a waiting
// thread looks at the clock again and again, and a look that comes much too late means that it was stopped.
#pragma once

#include <chrono>

#include "base/time/clock.hpp"

namespace amldist {

/// For one thread that looks about every `planned`. A busy machine delays looks as well; only a gap longer than `delay`
/// counts as a stop.
class ObservedTime {
 public:
  ObservedTime(std::chrono::milliseconds planned, std::chrono::milliseconds delay) : planned_(planned), delay_(delay) {}

  /// How long the thread was stopped before this look; zero if it was running.
  [[nodiscard]] Clock::duration missed(Clock::time_point now) noexcept {
    const auto last = last_look_ == Clock::time_point() ? now : last_look_;
    last_look_ = now;
    const auto between = now - last;
    return between > delay_ ? between - planned_ : Clock::duration::zero();
  }

 private:
  std::chrono::milliseconds planned_;
  std::chrono::milliseconds delay_;
  Clock::time_point last_look_;
};

}  // namespace amldist
