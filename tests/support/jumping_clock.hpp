// A time of day that is set while a test runs. This machine's own stays as it is: the program's clock_gettime() is
// replaced. Only one file of a program may include this.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace amldist::testing {

inline std::atomic<std::int64_t>& jump_s() {
  static std::atomic<std::int64_t> seconds = 0;
  return seconds;
}

/// Sets the time of day by that many seconds forward for as long as it lives.
class ClockJump {
 public:
  explicit ClockJump(std::int64_t seconds) { jump_s() = seconds; }
  ClockJump(const ClockJump&) = delete;
  ClockJump& operator=(const ClockJump&) = delete;
  ~ClockJump() { jump_s() = 0; }
};

}  // namespace amldist::testing

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto status = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += amldist::testing::jump_s();
  return status;
}
