// The one interface behind which everything that moves data stands: shared memory, TCP, MPI, NCCL, and the hierarchical
// composition of two of them. A communicator owns one back end for host buffers, and one for device buffers once the
// first one comes along.
//
// Rules for a back end
//  - Calls come one at a time, in the order in which all ranks make them; only abort() may come from another thread.
//  - A back end never waits without looking at the watchdog now and then (every millisecond or so): when it says stop,
//  the
//    back end returns that error at once and leaves its buffers as they are. It is not used again after an error.
//  - It says which ranks it waits for as exactly as it can: that is how a missing rank gets its name.
//  - It prints nothing and throws nothing but std::bad_alloc.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/calls/call.hpp"
#include "collective/calls/watchdog.hpp"
#include "core/result.hpp"

namespace amldist::collective {

/// A collection of ranks 0..size-1 that can run calls.
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "shared memory", "tcp", "mpi", "nccl", for messages and the recorder; static.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Runs one call to its end; for device buffers: enqueues it on call.stream. Arguments are checked already.
  [[nodiscard]] virtual Result<void> run(const Call& call, Watchdog& watchdog) = 0;

  /// Runs sends and receives that may cross, as one (amldist_group_end, and what asynchronous ones became).
  [[nodiscard]] virtual Result<void> run_group(std::span<const Call> messages, Watchdog& watchdog) = 0;

  /// Waits until what was enqueued on `stream` has come to its end; host back ends have nothing to do.
  [[nodiscard]] virtual Result<void> synchronize(void* /*stream*/, Watchdog& /*watchdog*/) { return {}; }
  /// Whether it has; never waits.
  [[nodiscard]] virtual Result<bool> is_complete(void* /*stream*/) { return true; }

  /// Same bits for the same layout, from the next call on.
  virtual void set_deterministic(bool /*on*/) {}

  /// Memory that run() uses without a copy, zeroed, at least page-aligned. Default: not available.
  [[nodiscard]] virtual Result<void*> allocate(std::size_t bytes) {
    return Error{Errc::unavailable, "this back end has no memory of its own for " + std::to_string(bytes) + " bytes"};
  }
  /// Takes back what allocate() gave.
  [[nodiscard]] virtual Result<void> release(void* /*memory*/) {
    return Error{Errc::invalid_argument, "this memory was not allocated here"};
  }

  /// Releases whoever waits inside run(), as soon as possible; from any thread. The watchdog will say stop as well.
  virtual void abort() noexcept {}
};

/// A small all-gather over the host side that is up before any data back end: NCCL's id travels by it, and the file
/// descriptors of shared memory. Collective over the communicator; pieces may differ in length.
class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Every rank's piece, in rank order. Errors name the ranks that did not come before `deadline`.
  [[nodiscard]] virtual Result<std::vector<std::string>> gather_all(std::string piece, Clock::time_point deadline) = 0;
};

}  // namespace amldist::collective
