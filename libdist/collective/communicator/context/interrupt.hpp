// Whether the program wants to interrupt a thread that waits in a call, as after Ctrl-C.
#pragma once

#include <chrono>

#include "base/time/clock.hpp"

namespace amldist::collective {

/// Called on the thread that set it, while that waits. Each thread has its own.
struct Interrupt {
  int (*function)(void* context) = nullptr;  ///< a result other than 0 ends the wait
  void* context = nullptr;
};

[[nodiscard]] inline Interrupt& interrupt_of_this_thread() noexcept {
  thread_local Interrupt own;
  return own;
}

/// Asks at intervals: the question may cost as much as a lock that other threads want.
class InterruptCheck {
 public:
  static constexpr std::chrono::milliseconds every{50};

  [[nodiscard]] bool is_interrupted(Clock::time_point now) {
    const Interrupt& own = interrupt_of_this_thread();
    if (own.function == nullptr || now < next_) return false;
    next_ = now + every;
    return own.function(own.context) != 0;
  }

 private:
  Clock::time_point next_;
};

}  // namespace amldist::collective
