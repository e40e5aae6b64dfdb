// Records what NCCL's profiler interface reports, in any version of it.
//
// Without events of the device it is not known when a collective ended. So a rank counts as being in its newest call on
// a communicator until it enqueues the next one, and ranks that have gone on count as waiting for it. Sends and
// receives are recorded but not judged.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "trace/record/flight_recorder.hpp"

namespace amldist::trace::nccl {

using trace::FlightRecorder;

/// One communicator of this process, which NCCL gets as its context.
struct Communicator {
  std::uint32_t slot = 0;
  std::uint64_t id = 0;
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<FlightRecorder::Ticket> last{0};  ///< its newest collective, which is still open
};

struct CollectiveFacts {
  std::string_view function;  ///< "AllReduce"
  std::string_view type;      ///< "ncclFloat32"
  std::uint64_t count = 0;
  int root = -1;
};
struct MessageFacts {
  std::string_view function;  ///< "Send", "Recv"
  std::string_view type;
  std::uint64_t count = 0;
  int peer = -1;
};

class NcclRecorder {
 public:
  /// Whether this process is traced. Opens the recorder the first time.
  bool start() noexcept;

  /// nullptr if out of memory or not traced. `ranks` 0: not known, as before version 4.
  Communicator* add(std::uint64_t id, int rank, int ranks, const char* name) noexcept;
  /// The communicator that an event of the first three versions names.
  Communicator* find_or_add(std::uint64_t id, int rank, const char* name) noexcept;
  /// Called last. The pointer must not be used afterwards; nullptr is allowed.
  void close(Communicator* communicator) noexcept;

  void enqueue(Communicator& communicator, const CollectiveFacts& facts) noexcept;
  void enqueue(Communicator& communicator, const MessageFacts& facts) noexcept;

 private:
  std::mutex mutex_;  ///< protects everything except enqueue()
  bool tried_ = false;
  FlightRecorder recorder_;
  std::unordered_map<std::uint64_t, Communicator*> by_id_;  ///< for versions without a context for each communicator
};

[[nodiscard]] NcclRecorder& recorder() noexcept;

}  // namespace amldist::trace::nccl
