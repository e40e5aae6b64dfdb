// Calls that were enqueued on a stream and have not come to their end there.
//
// The program waits for its stream, not for this library, and a kernel of NCCL waits for the other ranks without end.
// So a thread keeps watch in the program's place: it asks the event behind the oldest call until that has passed, a
// rank is found to be missing, or the communicator is lost on another rank; then NCCL is aborted, and the stream comes
// to rest.
//
// Calls go to the thread through a ring, without a lock and, as long as calls keep coming, without waking it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collective/communicator/call_watchdog.hpp"

namespace amldist::collective {

class Communicator::DeviceCalls {
 public:
  DeviceCalls(Communicator& owner, const CudaDriver& driver, NcclBackend& backend);
  /// Ends the thread; calls that have not ended stay as they are in the recorder.
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  /// Keeps watch over what was just enqueued on call.stream, and closes its record. Calls in a stream that is being
  /// captured for a graph have no end of their own, and are not watched. By one thread at a time.
  void add(const Call& call, FlightRecorder::Ticket ticket);
  /// Until none is left, or the communicator is lost.
  void await_all();
  /// What this rank does, whatever its program does meanwhile; nullopt: nothing is left. From any thread.
  [[nodiscard]] std::optional<Call> oldest() const;

 private:
  /// An event of the driver.
  using Event = void*;
  /// What ranks tell each other of a call; the caller's lists and buffers need not outlive it.
  struct Pending {
    Operation operation = Operation::none;
    DataType type = DataType::uint8;
    ReduceOp redop = ReduceOp::sum;
    int root = 0;
    std::size_t count = 0;
    std::uint64_t sequence = 0;
    FlightRecorder::Ticket ticket = 0;
    Event event = nullptr;  ///< made once for each place in the ring
  };
  /// Calls that are enqueued ahead of the device; about as many kernels as CUDA itself takes before it makes one wait.
  static constexpr std::size_t most_pending = 1024;

  [[nodiscard]] Pending& at(std::uint64_t number) { return ring_[number % most_pending]; }
  [[nodiscard]] const Pending& at(std::uint64_t number) const { return ring_[number % most_pending]; }
  [[nodiscard]] bool is_empty() const noexcept { return begun_.load() == ended_.load(); }
  [[nodiscard]] bool mark(Event& event, void* stream) const;
  void wait_for_room();
  void wake();
  void watch();
  [[nodiscard]] bool wait_for_call();
  [[nodiscard]] std::optional<Result<void>> await(const Pending& first);
  [[nodiscard]] Result<bool> has_passed(Event event) const;
  void give_up(const Error& error);

  Communicator& owner_;
  const CudaDriver& driver_;
  NcclBackend& backend_;

  std::vector<Pending> ring_;
  alignas(64) std::atomic<std::uint64_t> begun_ = 0;  ///< calls that were put into the ring
  alignas(64) std::atomic<std::uint64_t> ended_ = 0;  ///< calls that have passed; grows under the mutex
  std::atomic<bool> asleep_ = false;                  ///< the thread is to be woken for the next call
  std::atomic<bool> lost_ = false;

  mutable std::mutex mutex_;  // guards what follows, and whoever sleeps for a change of what is above
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  ///< started by the first call
};

}  // namespace amldist::collective
