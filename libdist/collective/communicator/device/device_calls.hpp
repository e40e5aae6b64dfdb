// Calls on buffers of a GPU, over NCCL, which the first such call opens.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/time/tick_clock.hpp"
#include "collective/communicator/context/control_gather.hpp"
#include "collective/communicator/device/pending_device_calls.hpp"

namespace amldist::collective {

/// device_of() is thread-safe; the rest is for the one thread that runs the communicator's calls.
class DeviceCalls {
 public:
  DeviceCalls(CommContext& context, ControlGather& gather, CallObserver& observer, CudaProbe& cuda,
              const std::string& nccl_library)
      : context_(context), gather_(gather), observer_(observer), cuda_(cuda), nccl_library_(nccl_library) {}

  /// Where the call's data is; nullptr if it has no data. Calls with uneven parts have no count.
  [[nodiscard]] static const void* buffer_of(const calls::Call& call) noexcept {
    if (call.count == 0 && call.lists == nullptr) return nullptr;
    return call.send != nullptr ? call.send : call.recv;
  }

  static constexpr int no_device = -1;
  /// The GPU that the call's buffers belong to; no_device: the host's memory. `now` in ticks, of which there are at
  /// least as many as nanoseconds, so that the probe looks a little more often than necessary. (GCC writes one byte of
  /// an optional here and reads all of it at once; that takes 4 ns of each call.)
  [[nodiscard]] [[gnu::always_inline]] int device_of(const calls::Call& call, std::uint64_t now) const {
    const CudaDriver* const driver = cuda_.look(now);
    if (driver == nullptr) return no_device;
    const void* const buffer = buffer_of(call);
    return buffer == nullptr ? no_device : collective::device_of(*driver, buffer).value_or(no_device);
  }

  /// Enqueues a call on call.stream. The first call is collective: it opens NCCL on all ranks.
  [[nodiscard]] Result<void> run(int device, const calls::Call& call, CallWatchdog& watchdog);
  /// Enqueues sends and receives as one call.
  [[nodiscard]] Result<void> run_group(int device, std::span<const calls::Call> messages, CallWatchdog& watchdog);
  /// Watches a call that was enqueued, and reports its end to the observer.
  void watch(const calls::Call& call, CallObserver::Ticket ticket) { pending_->add(call, ticket); }

  /// Waits until the stream has done what was enqueued.
  [[nodiscard]] Result<void> synchronize(void* stream, CallWatchdog& watchdog);
  /// Waits until the device has done all calls, or the communicator is lost.
  void await_all() {
    if (pending_) pending_->await_all();
  }
  /// Ends the watching thread. Nothing may be enqueued afterwards.
  void stop_watching() { pending_.reset(); }

 private:
  [[nodiscard]] Result<void> open(int device, CallWatchdog& watchdog);

  CommContext& context_;
  ControlGather& gather_;
  CallObserver& observer_;
  CudaProbe& cuda_;
  const std::string& nccl_library_;       ///< of the user's settings; "": NCCL is searched for
  std::unique_ptr<NcclBackend> backend_;  ///< from the first device buffer on
  std::unique_ptr<PendingDeviceCalls> pending_;
};

}  // namespace amldist::collective
