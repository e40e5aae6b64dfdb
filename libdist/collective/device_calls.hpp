// Calls that were enqueued on a stream and have not come to their end there.
//
// The program waits for its stream, not for this library, and a kernel of NCCL waits for the other ranks without end.
// So a thread keeps watch in the program's place: it asks the event behind the oldest call until that has passed, a
// rank is found to be missing, or the communicator is lost on another rank; then NCCL is aborted, and the stream comes
// to rest.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collective/communicator_vigil.hpp"

namespace amldist::collective {

class Communicator::DeviceCalls {
 public:
  DeviceCalls(Communicator& owner, const CudaDriver& driver, NcclBackend& backend)
      : owner_(owner), driver_(driver), backend_(backend) {}
  /// Ends the thread; calls that have not ended stay as they are in the recorder.
  ~DeviceCalls();
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  /// Keeps watch over what was just enqueued on call.stream, and closes its record. Calls in a stream that is being
  /// captured for a graph have no end of their own, and are not watched.
  void add(const Call& call, FlightRecorder::Ticket ticket);
  /// Until none is left, or the communicator is lost.
  void await_all();

 private:
  /// An event of the driver, used again and again.
  using Event = void*;
  struct Pending {
    Call call;
    FlightRecorder::Ticket ticket = 0;
    Event event = nullptr;
  };

  [[nodiscard]] Event mark(void* stream);
  void watch();
  [[nodiscard]] std::optional<Result<void>> await(const Pending& first);
  [[nodiscard]] Result<bool> has_passed(Event event) const;
  void give_up(const Error& error);

  Communicator& owner_;
  const CudaDriver& driver_;
  NcclBackend& backend_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<Pending> pending_;  ///< oldest first
  std::vector<Event> unused_;
  bool stopping_ = false;
  bool lost_ = false;
  std::thread thread_;  ///< started by the first call
};

}  // namespace amldist::collective
