// Runs calls: gives each its number, its watchdog and a back end, and reports its begin and end to the observer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time/burst_clock.hpp"
#include "collective/communicator/context/call_recorder.hpp"
#include "collective/communicator/context/refused_calls.hpp"
#include "collective/communicator/context/request.hpp"
#include "collective/communicator/device/device_calls.hpp"
#include "collective/communicator/host/host_backend.hpp"

namespace amldist::collective {

/// Used by one thread at a time: the program's, or the one that drives the progress engine. Calls were checked before.
/// An error of a call loses the communicator on all its ranks; a call that cannot be made at all is refused before it
/// begins.
class CallRunner {
 public:
  /// The objects that it uses; all must outlive it.
  struct Parts {
    CommContext& context;
    SequenceNumbers& numbers;
    RefusedCalls& refused;
    CallRecorder& recorder;
    HostBackend& host;
    DeviceCalls& devices;
    ControlGather& gather;
    ProgressHook& progress;  ///< driven while a call waits
    const TickClock& ticks;
  };
  explicit CallRunner(const Parts& parts) : parts_(parts) {}

  /// On the host, runs the call to its end; on a device, until it is enqueued. Sets the call's sequence number.
  [[nodiscard]] Result<void> run(calls::Call& call) { return run(call, nullptr); }
  /// Runs sends and receives that may cross as one call.
  [[nodiscard]] Result<void> run_group(std::span<calls::Call> messages);
  /// Runs what the progress engine took from its queue: one request, or several messages that run as one. Done when the
  /// device is done, too. `is_awaited`: whether a thread of the program waits for it, which may change meanwhile.
  [[nodiscard]] Result<void> run_to_completion(const std::vector<RequestPtr>& requests,
                                               const std::atomic<bool>& is_awaited);
  /// For a thread that waits for another thread, which runs a call.
  void interrupt() { parts_.context.interrupt(); }
  /// The last call: waits for all ranks. Errors: those of a call, and a rank that has not received all messages sent to
  /// it.
  [[nodiscard]] Result<void> finalize();

 private:
  [[nodiscard]] Result<void> run(calls::Call& call, const std::atomic<bool>* is_awaited);
  [[nodiscard]] Result<void> run_on_host(const calls::Call& call, std::uint64_t began,
                                         const std::atomic<bool>* is_awaited);
  [[nodiscard]] Result<void> run_on_device(int device, const calls::Call& call, std::uint64_t began);
  [[nodiscard]] Result<void> run_split(const calls::Call& call);
  /// A call that has begun is visible to the observer and the other ranks until it ends.
  template <typename Finish>
  [[nodiscard]] Result<void> observe(const calls::Call& call, std::uint64_t began, bool on_device,
                                     const std::atomic<bool>* is_awaited, Finish finish);
  void complete(const calls::Call& call, CallObserver::Ticket ticket, std::uint64_t began);
  [[nodiscard]] Error refuse(const calls::Call& call, bool is_blocking);
  void fail(CallObserver::Ticket ticket, const Error& error);

  const Parts parts_;
  BurstClock clock_;
};

}  // namespace amldist::collective
