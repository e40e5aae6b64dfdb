// Whether a program waits for its calls soon after it has begun them. Then waking a thread that makes progress
// meanwhile would take longer than the wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/time/clock.hpp"

namespace amldist::collective {

/// Used by the program's thread. Reads the clock for one wait of eight. What the calls themselves take does not make a
/// wait late: a window of messages is begun in a row. `Time`: a test has one of its own.
template <typename Time>
class WaitHabitOn {
 public:
  /// A call has begun.
  void note_begin() noexcept {
    ++since_wait_;
    if (is_measuring_ || !measures_next_) return;
    began_ = Time::now();
    is_measuring_ = true;
    before_ = since_wait_;
  }
  /// The program waits for a call.
  void note_wait() noexcept {
    const unsigned begun = std::exchange(since_wait_, 0U) - before_;
    if (!std::exchange(is_measuring_, false)) {
      measures_next_ = soon_ < needed || ++unmeasured_ % every == 0;
      return;
    }
    const auto soon_enough = soon_after + of_each_call * begun;
    soon_ = Time::now() - began_ > soon_enough ? 0 : soon_ < needed ? soon_ + 1 : needed;
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
  static constexpr std::chrono::microseconds of_each_call{1};  ///< after the first
  static constexpr unsigned needed = 3;
  static constexpr unsigned every = 8;
  static constexpr unsigned most_begun = 1000;  ///< calls without a wait

  typename Time::time_point began_;
  bool is_measuring_ = false;
  bool measures_next_ = true;
  unsigned soon_ = 0;  ///< measured waits that came soon, one after the other
  unsigned unmeasured_ = 0;
  unsigned since_wait_ = 0;  ///< calls that have begun since the last wait, and
  unsigned before_ = 0;      ///< how many of them when the measurement began
};
using WaitHabit = WaitHabitOn<Clock>;

}  // namespace amldist::collective
