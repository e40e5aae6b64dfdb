// Whether computing programs compete for this rank's processor, judged by the length of its own yields.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/time/clock.hpp"

namespace amldist::collective {

/// Ranks that wait yield back at once; a program that computes keeps the processor for its time slice, about 3 ms. One
/// such yield means little: a starting process takes as long. Two in a row mean a program that keeps computing for a
/// while; the longer it has done so, the longer it is expected to go on. Not thread-safe.
class ProcessorContention {
 public:
  /// `ranks` of the node: a yield may be a turn of all of them.
  explicit ProcessorContention(std::uint32_t ranks) noexcept
      : longest_own_yield_(std::max<Clock::duration>(std::chrono::microseconds(300), ranks * turn_of_a_rank)) {}

  /// A yield returned at `now`, after `taken`. Returns whether the processor is contended from now on.
  bool yielded(Clock::time_point now, Clock::duration taken) noexcept {
    if (taken <= longest_own_yield_ || now < expected_until_) {
      long_yields_ = 0;
      return false;
    }
    if (++long_yields_ < enough) return false;
    long_yields_ = 0;
    const bool goes_on = until_ != Clock::time_point() && now < until_ + period_;
    period_ = goes_on ? std::min(period_ * 2, longest_period) : first_period;
    until_ = now + period_;
    return true;
  }
  /// Ignores long yields until then, because the ranks themselves do something that takes long.
  void expect_long_yields_until(Clock::time_point end) noexcept { expected_until_ = end; }
  [[nodiscard]] bool is_contended(Clock::time_point now) const noexcept { return now < until_; }
  /// Whether it ever was; saves reading the clock.
  [[nodiscard]] bool was_contended() const noexcept { return until_ != Clock::time_point(); }

 private:
  static constexpr int enough = 2;
  static constexpr Clock::duration turn_of_a_rank = std::chrono::microseconds(10);
  static constexpr Clock::duration first_period = std::chrono::milliseconds(20);
  static constexpr Clock::duration longest_period = std::chrono::milliseconds(640);

  Clock::duration longest_own_yield_;
  int long_yields_ = 0;  ///< in a row
  Clock::duration period_ = first_period;
  Clock::time_point until_;
  Clock::time_point expected_until_;
};

}  // namespace amldist::collective
