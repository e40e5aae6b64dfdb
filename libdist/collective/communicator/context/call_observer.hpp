// Observes every call of a communicator, as PyTorch's hooks do: a flight recorder, a profiler, a test.
#pragma once

#include <cstdint>

#include "base/text/result.hpp"
#include "calls/call.hpp"

namespace amldist::collective {

/// Each call that begins ends once, in complete() or fail(), possibly on another thread: calls on a device end when the
/// device has done them. Thread-safe. An observer does not change a call, and does not wait.
class CallObserver {
 public:
  using Ticket = std::uint64_t;  ///< identifies a call between its begin and its end

  virtual ~CallObserver() = default;
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  /// `call` has its sequence number. `began`: when, in ticks of TickClock.
  [[nodiscard]] virtual Ticket begin(const calls::Call& call, std::uint64_t began) = 0;
  virtual void complete(Ticket ticket) = 0;
  virtual void fail(Ticket ticket, const Error& error) = 0;

  // To read a clock takes as long as the rest of a record: several calls that end together share a reading of
  // TickClock.
  /// As complete().
  virtual void complete_at(Ticket ticket, std::uint64_t /*now*/) { complete(ticket); }
  /// A call that has begun and ended.
  virtual void record_ended(const calls::Call& call, std::uint64_t began, std::uint64_t ended) {
    complete_at(begin(call, began), ended);
  }
};

}  // namespace amldist::collective
