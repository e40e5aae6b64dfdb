// Tells time in which a process ran from time in which it was stopped (SIGSTOP, scontrol suspend): whoever waits looks
// at the clock again and again, and a look that comes much too late was not possible before.
#pragma once

#include <chrono>

#include "os/clock.hpp"

namespace amldist {

/// For one thread that looks at least every `planned`, which is much shorter than what it waits for.
class ObservedTime {
 public:
  explicit ObservedTime(std::chrono::milliseconds planned) : planned_(planned) {}

  /// By how much this look comes later than `planned` after the last one; zero in a process that runs.
  [[nodiscard]] Clock::duration missed(Clock::time_point now) noexcept {
    const auto last = last_look_ == Clock::time_point() ? now : last_look_;
    last_look_ = now;
    const auto between = now - last;
    return between > planned_ ? between - planned_ : Clock::duration::zero();
  }

 private:
  std::chrono::milliseconds planned_;
  Clock::time_point last_look_;
};

}  // namespace amldist
