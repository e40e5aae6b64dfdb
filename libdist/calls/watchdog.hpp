// The watchdog of a call: waiting code asks it now and then, so that no call waits for a rank that has ended.
#pragma once

#include <string_view>

#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist::calls {

/// Watches the peers of a call while it waits. One per call, used by the thread that runs the call; made by the
/// communicator, which knows the deadline, the ranks that have ended and the diagnoses of others.
class Watchdog {
 public:
  /// Any rank of the communicator, for a back end that does not know which rank it waits for.
  static constexpr int anyone = -1;

  virtual ~Watchdog() = default;
  Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Called while waiting for `rank` (of this communicator). An error means: stop and return it. Blocks for
  /// about a second when the deadline has passed, to find out who is missing. Costs about 30 ns otherwise.
  [[nodiscard]] virtual Result<void> keep_waiting(int rank) = 0;

  /// The back end found that the peer's call differs from this rank's (a signature, a length). Ends the call on every
  /// rank with an error that names who called what. Always an error.
  [[nodiscard]] virtual Error differs(int rank) = 0;

  /// The back end lost the connection to `rank`, or its library says so; `what` is a clause for people. Always an
  /// error.
  [[nodiscard]] virtual Error lost(int rank, std::string_view what) = 0;

  /// Why this rank cannot reach `rank` at present, such as "cannot connect to 10.0.0.7:20048: No route to host"; empty
  /// if it can. The diagnosis quotes it if the call does not end. Never waits.
  virtual void troubled(int /*rank*/, std::string_view /*why*/) {}

  [[nodiscard]] virtual Clock::time_point deadline() const noexcept = 0;

  /// Whether no thread of the program waits for the call, so that the program may be computing on the processor that
  /// polls. Costs nothing, and may change during the call.
  [[nodiscard]] virtual bool is_unawaited() const noexcept { return false; }
};

}  // namespace amldist::calls
