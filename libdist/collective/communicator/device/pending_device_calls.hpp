// Calls that were enqueued on a stream and have not ended there.
//
// The program waits for its stream, not for this library, and a kernel of NCCL waits for the other ranks for ever. So a
// thread watches instead: it polls the event after the oldest call until that has passed, a rank is found to be
// missing, or the communicator is lost on another rank; then it aborts NCCL, and the stream becomes idle.
//
// Calls go to the thread through a lock-free ring and, as long as calls keep coming, without waking it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collective/communicator/context/call_observer.hpp"
#include "collective/communicator/context/call_watchdog.hpp"
#include "collective/gpu/nccl_backend.hpp"

namespace amldist::collective {

/// Owns the thread, which the first call starts. add() and await_all() are for the thread that runs the communicator's
/// calls; oldest() is thread-safe.
class PendingDeviceCalls {
 public:
  PendingDeviceCalls(CommContext& context, CallObserver& observer, const CudaDriver& driver, NcclBackend& backend);
  /// Ends the thread; calls that have not ended are not reported to the observer.
  ~PendingDeviceCalls();
  PendingDeviceCalls(const PendingDeviceCalls&) = delete;
  PendingDeviceCalls& operator=(const PendingDeviceCalls&) = delete;

  /// Watches the call just enqueued on call.stream, and reports its end to the observer. Calls on a stream that is
  /// being captured for a graph have no end of their own, and are not watched.
  void add(const calls::Call& call, CallObserver::Ticket ticket);
  /// Waits until all calls have ended, or the communicator is lost.
  void await_all();
  /// The oldest call that the device has not done; nullopt if it has done all.
  [[nodiscard]] std::optional<calls::Call> oldest() const;

 private:
  /// An event of the driver.
  using Event = void*;
  /// What ranks tell each other about a call; the caller's lists and buffers need not outlive it.
  struct Pending {
    calls::Operation operation = calls::Operation::none;
    calls::DataType type = calls::DataType::uint8;
    calls::ReduceOp redop = calls::ReduceOp::sum;
    int root = 0;
    std::size_t count = 0;
    std::uint64_t sequence = 0;
    CallObserver::Ticket ticket = 0;
    Event event = nullptr;  ///< made once for each place in the ring
  };
  /// Most calls enqueued ahead of the device; about as many kernels as CUDA itself accepts before it blocks.
  static constexpr std::size_t most_pending = 1024;

  [[nodiscard]] Pending& at(std::uint64_t number) { return ring_[number % most_pending]; }
  [[nodiscard]] const Pending& at(std::uint64_t number) const { return ring_[number % most_pending]; }
  [[nodiscard]] bool is_empty() const noexcept { return begun_.load() == ended_.load(); }
  [[nodiscard]] bool record_event(Event& event, void* stream) const;
  void fail_late(std::uint64_t number, CallObserver::Ticket ticket);
  void wait_for_room();
  void wake();
  void run_thread();
  [[nodiscard]] bool wait_for_call();
  [[nodiscard]] std::optional<Result<void>> await(const Pending& first);
  [[nodiscard]] Result<bool> has_passed(Event event) const;
  void fail_all(const Error& error);

  CommContext& context_;
  CallObserver& observer_;
  const CudaDriver& driver_;
  NcclBackend& backend_;

  std::vector<Pending> ring_;
  alignas(64) std::atomic<std::uint64_t> begun_ = 0;  ///< calls that were put into the ring
  alignas(64) std::atomic<std::uint64_t> ended_ = 0;  ///< calls that have passed; grows under the mutex
  std::atomic<bool> asleep_ = false;                  ///< the next call must wake the thread
  std::atomic<bool> lost_ = false;

  mutable std::mutex mutex_;  // guards the members below, and threads that sleep until those above change
  std::condition_variable changed_;
  bool stopping_ = false;
  std::uint64_t failed_ = 0;  ///< calls up to this one have failed, once the communicator is lost
  std::thread thread_;
};

}  // namespace amldist::collective
