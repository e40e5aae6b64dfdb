// Whether a program waits for its calls soon after it has begun them. Then waking a thread that makes progress
// meanwhile would take longer than the wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/time/clock.hpp"

namespace amldist::collective {

/// Used by the program's thread. Reads the clock for one wait of eight. `Time`: a test has one of its own.
template <typename Time>
class WaitHabitOn {
 public:
  /// A call has begun.
  void note_begin() noexcept {
    ++since_wait_;
    if (is_measuring_ || !measures_next_) return;
    began_ = Time::now();
    is_measuring_ = true;
  }
  /// The program waits for a call.
  void note_wait() noexcept {
    since_wait_ = 0;
    if (!std::exchange(is_measuring_, false)) {
      measures_next_ = soon_ < needed || ++unmeasured_ % every == 0;
      return;
    }
    soon_ = Time::now() - began_ > soon_after ? 0 : soon_ < needed ? soon_ + 1 : needed;
    measures_next_ = soon_ < needed;
  }
  /// The program only asks whether a call is done.
  void note_test() noexcept {
    since_wait_ = 0;
    soon_ = 0;
    measures_next_ = true;
  }
  [[nodiscard]] bool waits_soon() const noexcept { return soon_ == needed && since_wait_ < most_begun; }

 private:
  static constexpr std::chrono::microseconds soon_after{20};
  static constexpr unsigned needed = 3;
  static constexpr unsigned every = 8;
  static constexpr unsigned most_begun = 1000;  ///< calls without a wait

  typename Time::time_point began_;
  bool is_measuring_ = false;
  bool measures_next_ = true;
  unsigned soon_ = 0;  ///< measured waits that came soon, one after the other
  unsigned unmeasured_ = 0;
  unsigned since_wait_ = 0;
};
using WaitHabit = WaitHabitOn<Clock>;

}  // namespace amldist::collective
