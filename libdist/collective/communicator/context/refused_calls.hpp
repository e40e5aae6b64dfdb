// Calls made after the communicator was lost.
#pragma once

#include <atomic>

#include "collective/communicator/context/call_observer.hpp"
#include "collective/communicator/context/comm_context.hpp"
#include "collective/communicator/context/sequence_numbers.hpp"

namespace amldist::collective {

/// Used like SequenceNumbers.
class RefusedCalls {
 public:
  RefusedCalls(CommContext& context, const SequenceNumbers& numbers, CallObserver& observer)
      : context_(context), numbers_(numbers), observer_(observer) {}

  /// The error for a call on a lost communicator. The observer is told of the first one: the flight recorder of a
  /// process that ended because of it then shows that another rank's end was the cause. `now` in ticks of TickClock.
  [[nodiscard]] Error refuse(const calls::Call& late, std::uint64_t now);

 private:
  CommContext& context_;
  const SequenceNumbers& numbers_;
  CallObserver& observer_;
  std::atomic<bool> has_refused_ = false;
};

}  // namespace amldist::collective
