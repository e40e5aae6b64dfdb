// When a step with the key stop= is asked to stop: so many seconds before the time limit, which slurmctld knows and may
// change meanwhile. Pure: answers and the time come in.
#pragma once

#include <chrono>
#include <optional>

#include "base/time/clock.hpp"

namespace amldist::step {

class StopTimer {
 public:
  using Left = std::optional<std::chrono::seconds>;

  StopTimer(std::chrono::seconds before, Clock::time_point now) : before_(before), next_question_(now) {}

  /// Whether slurmctld is to be asked: now and then, and before the stop.
  [[nodiscard]] bool wants_limit(Clock::time_point now) const { return !is_raised_ && now >= next_question(); }
  /// slurmctld's answer: the time until the limit; nullopt if there is no limit.
  void take(Left left, Clock::time_point now);
  /// slurmctld does not answer: what it said last holds.
  void take_silence(Clock::time_point now) { next_question_ = now + interval; }

  /// Whether the step is to be asked now. Once.
  [[nodiscard]] bool raise(Clock::time_point now);
  /// The time until the stop, not negative; nullopt: none is known.
  [[nodiscard]] std::optional<std::chrono::milliseconds> until_stop(Clock::time_point now) const;
  /// When something is to be done, at the latest.
  [[nodiscard]] std::optional<Clock::time_point> due() const;

 private:
  static constexpr std::chrono::seconds interval{15};
  [[nodiscard]] Clock::time_point next_question() const;

  const std::chrono::seconds before_;
  Clock::time_point next_question_;
  Clock::time_point asked_at_{};
  std::optional<Clock::time_point> stop_at_;
  bool is_raised_ = false;
};

}  // namespace amldist::step
