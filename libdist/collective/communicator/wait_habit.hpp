// Whether a program waits for its calls soon after it has begun them. Then waking a thread that makes progress
// meanwhile would take longer than the wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/time/clock.hpp"

namespace amldist::collective {

/// Used by the program's thread. Measures one wait of eight, and reads the clock only for that. What the calls
/// themselves take does not make a wait late: a window of messages is begun in a row. Nor does one late wait after
/// three soon ones end the habit: the system may have taken the processor away. `Time`: a test has one of its own.
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
  /// Lives as long as a call that begins a message, and leaves the time of a long one out of the measurement: the
  /// program does nothing else meanwhile. Short ones are not worth timing; each call is allowed a microsecond instead.
  class CallTime {
   public:
    CallTime(WaitHabitOn& habit, bool is_long) noexcept : habit_(habit), is_timed_(is_long && habit.is_measuring_) {
      if (is_timed_) began_ = Time::now();
    }
    ~CallTime() {
      if (is_timed_) habit_.began_ += Time::now() - began_;
    }
    CallTime(const CallTime&) = delete;
    CallTime& operator=(const CallTime&) = delete;

   private:
    WaitHabitOn& habit_;
    const bool is_timed_;
    typename Time::time_point began_;
  };
  /// The program waits for a call.
  void note_wait() noexcept {
    const unsigned begun = std::exchange(since_wait_, 0);
    if (!std::exchange(is_measuring_, false)) {
      measures_next_ = soon_ < needed || ++unmeasured_ % every == 0;
      return;
    }
    if (Time::now() - began_ > soon_after + of_each_call * begun) {
      has_habit_ = has_habit_ && soon_ == needed;
      soon_ = 0;
    } else if (soon_ < needed && ++soon_ == needed) {
      has_habit_ = true;
    }
    measures_next_ = soon_ < needed;
  }
  /// The program only asks whether a call is done.
  void note_test() noexcept {
    since_wait_ = 0;
    has_habit_ = false;
    soon_ = 0;
    measures_next_ = true;
  }
  [[nodiscard]] bool waits_soon() const noexcept { return has_habit_ && since_wait_ < most_begun; }

 private:
  static constexpr std::chrono::microseconds soon_after{20};
  static constexpr std::chrono::microseconds of_each_call{1};
  static constexpr unsigned needed = 3;
  static constexpr unsigned every = 8;
  static constexpr unsigned most_begun = 1000;  ///< calls without a wait

  typename Time::time_point began_;
  bool is_measuring_ = false;
  bool measures_next_ = true;
  bool has_habit_ = false;
  unsigned soon_ = 0;  ///< measured waits that came soon, one after the other, at most `needed`
  unsigned unmeasured_ = 0;
  unsigned since_wait_ = 0;  ///< calls that have begun
};
using WaitHabit = WaitHabitOn<Clock>;

}  // namespace amldist::collective
