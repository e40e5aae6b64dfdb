// Pauses between the looks of a rank that waits for another one, which tell when it waited.
#pragma once

#include <cstdint>

#include "base/time/tick_clock.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// When a call looked for other ranks and found nothing, in ticks of TickClock. A short call takes its recorded times
/// from this, because reading the counter twice more costs up to 50 ns in a virtual machine.
struct VainLooks {
  std::uint64_t first = 0;  ///< 0: every look found what it looked for
  std::uint64_t last = 0;   ///< 0: not known

  /// When the call ended, if that was at its last look; `began` if it never waited.
  [[nodiscard]] std::uint64_t end(std::uint64_t began, const TickClock& clock) const noexcept {
    return first == 0 ? began : last == 0 ? clock.now() : last;
  }
};

/// For one thread at a time.
class TimedPauses {
 public:
  /// A call begins.
  void begin_call() noexcept { looks_ = {}; }
  /// As relax_briefly(), and keeps the time.
  void pause() noexcept {
#ifndef __x86_64__
    relax();  // reading the clock takes no time there
#endif
    looks_.last = clock_.now();
    if (looks_.first == 0) looks_.first = looks_.last;
  }
  /// The call waits in other ways from here on.
  void wait_otherwise() noexcept {
    pause();
    looks_.last = 0;
  }
  [[nodiscard]] const VainLooks& looks() const noexcept { return looks_; }

 private:
  TickClock clock_;
  VainLooks looks_;
};

}  // namespace amldist::collective
