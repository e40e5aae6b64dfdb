#include "step/server/stop_timer.hpp"

#include <algorithm>

namespace amldist::step {

using std::chrono::milliseconds;

void StopTimer::take(Left left, Clock::time_point now) {
  stop_at_ = left ? std::optional(now + *left - before_) : std::nullopt;
  asked_at_ = now;
  next_question_ = now + interval;
}

/// The limit may have been extended since the last answer: it is asked for just before the stop.
Clock::time_point StopTimer::next_question() const {
  constexpr std::chrono::seconds just_before{1};
  if (!stop_at_ || asked_at_ >= *stop_at_ - just_before) return next_question_;
  return std::min(next_question_, *stop_at_ - just_before);
}

bool StopTimer::raise(Clock::time_point now) {
  if (is_raised_ || !stop_at_ || now < *stop_at_) return false;
  is_raised_ = true;
  return true;
}

std::optional<milliseconds> StopTimer::until_stop(Clock::time_point now) const {
  if (is_raised_) return milliseconds(0);
  if (!stop_at_) return std::nullopt;
  return std::max(std::chrono::ceil<milliseconds>(*stop_at_ - now), milliseconds(0));
}

std::optional<Clock::time_point> StopTimer::due() const {
  if (is_raised_) return std::nullopt;
  return stop_at_ ? std::min(next_question(), *stop_at_) : next_question();
}

}  // namespace amldist::step
