// The watchdog of a call: what a wait asks now and then, so that no call waits for a rank that is gone.
#pragma once

#include <string_view>

#include "core/result.hpp"
#include "os/clock.hpp"

namespace amldist::collective {

/// The eye that a call keeps on its peers while it waits. One per call; made by the communicator, which knows the
/// deadline, the ranks that died and the verdicts of others.
class Watchdog {
 public:
  /// Every rank of the communicator: what a back end says that cannot know better.
  static constexpr int anyone = -1;

  virtual ~Watchdog() = default;
  Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// To be asked while waiting for `rank` (of this communicator). An error means: stop and return it. May block for
  /// about a second when the deadline has passed, to find out who is missing. Costs about 30 ns otherwise.
  [[nodiscard]] virtual Result<void> keep_waiting(int rank) = 0;

  /// Back end found the peer's call to differ from ours (a signature, a length): ends the call on every rank with an
  /// error that names who called what. Always an error.
  [[nodiscard]] virtual Error differs(int rank) = 0;

  /// The back end lost the connection to `rank`, or its library reports so; `what` is a clause for people. Always an
  /// error.
  [[nodiscard]] virtual Error lost(int rank, std::string_view what) = 0;

  [[nodiscard]] virtual Clock::time_point deadline() const noexcept = 0;
};

}  // namespace amldist::collective
