// Pauses between the looks of a rank that waits for another one, which tell when it waited.
#pragma once

#include <cstdint>

#include "base/time/tick_clock.hpp"
#include "collective/node/channel/relax.hpp"

namespace amldist::collective {

/// The times of a call's looks for other ranks that found nothing, in ticks of TickClock. They are what a short call
/// takes its times from: to read the counter costs up to 25 ns in a virtual machine, and a call would do it twice.
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
  /// A pause for the first looks of a wait that may end at any moment. relax() takes 23 ns or more, nearly as long as a
  /// cache line takes to arrive; looking without any pause would keep taking the line away from its writer.
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
