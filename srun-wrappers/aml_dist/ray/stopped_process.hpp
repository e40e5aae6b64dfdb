// Ray's servers that stand still: a raylet that somebody stopped keeps its step waiting, and nobody says why.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/time/clock.hpp"

namespace amldist::ray {

class StoppedProcess {
 public:
  /// "raylet (process 123) is stopped (SIGSTOP) for 30 s", for a raylet or a gcs_server below this process; else
  /// nullopt. Looks every five seconds, and counts looks: the time in which the whole step is suspended does not count.
  [[nodiscard]] std::optional<std::string> find();

 private:
  Clock::time_point next_look_;
  pid_t process_ = 0;
  int looks_ = 0;
};

}  // namespace amldist::ray
