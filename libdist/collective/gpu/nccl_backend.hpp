// Collectives on device buffers over NCCL that never wait longer than a deadline.
//
// NCCL's communicator is non-blocking: every call returns at once, and its result is polled until it is known, the
// watchdog stops the call, or another thread aborts. Every error ends in ncclCommAbort on every rank, which makes the
// kernels of the surviving ranks return.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "calls/call.hpp"
#include "calls/exchange.hpp"
#include "calls/watchdog.hpp"
#include "collective/gpu/cuda_driver.hpp"
#include "collective/gpu/nccl_api.hpp"

namespace amldist::collective {

/// One thread at a time makes calls, in the order in which all ranks make them; abort() and health() are thread-safe.
/// Must not be used again after an error.
class NcclBackend {
 public:
  /// All ranks of a communicator call it with its first device buffer; collective over `exchange`, which carries rank
  /// 0's id and what each rank found, so that all ranks fail alike and with a sentence that names the rank without
  /// NCCL, with another major release, or that did not start before the deadline. `api` is this rank's own result of
  /// load_nccl(); `device` the GPU of this rank's buffer; `driver` must outlive the back end.
  [[nodiscard]] static Result<std::unique_ptr<NcclBackend>> create(Result<NcclApi> api, const CudaDriver& driver,
                                                                   int device, calls::Exchange& exchange,
                                                                   Clock::time_point deadline);

  ~NcclBackend();
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  [[nodiscard]] int device() const noexcept { return context_.device(); }
  [[nodiscard]] const DeviceContext& context() const noexcept { return context_; }

  /// Error if NCCL has no such call; it is refused before it begins.
  [[nodiscard]] static Result<void> supports(const calls::Call& call);

  [[nodiscard]] Result<void> run(const calls::Call& call, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> run_group(std::span<const calls::Call> messages, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> synchronize(void* stream, calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> is_complete(void* stream);
  /// Whether NCCL has reported an error since; never waits and never aborts: aborting makes the stream idle, so the
  /// reason must be given before.
  [[nodiscard]] Result<void> health();

  /// Device memory registered with NCCL, which transports use without a copy.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes);
  [[nodiscard]] Result<void> release(void* memory);

  /// A communicator of the ranks with the same colour, ordered by key; collective. A negative colour: nullptr. Shares
  /// this one's connections if NCCL can.
  [[nodiscard]] Result<std::unique_ptr<NcclBackend>> split(int color, int key, int new_rank, int new_size,
                                                           calls::Watchdog& watchdog);

  void abort() noexcept;

 private:
  NcclBackend(NcclApi api, const CudaDriver& driver, DeviceContext context, int rank, int size);

  [[nodiscard]] Result<void> start(const NcclUniqueId& id, Clock::time_point deadline);
  [[nodiscard]] Result<void> async_error();
  [[nodiscard]] int enqueue(const calls::Call& call);
  [[nodiscard]] int enqueue_pieces(const calls::Call& call);
  [[nodiscard]] int enqueue_broadcasts(const calls::Call& call);
  [[nodiscard]] int enqueue_reduces(const calls::Call& call);
  [[nodiscard]] int enqueue_message(const calls::Call& message);
  [[nodiscard]] int barrier(void* stream);
  template <typename Enqueue>
  [[nodiscard]] int grouped(Enqueue enqueue);
  template <typename KeepWaiting>
  [[nodiscard]] Result<void> settle(int result, std::string_view what, KeepWaiting keep_waiting);
  [[nodiscard]] Result<void> settle(int result, std::string_view what, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> end(Result<void> result);
  [[nodiscard]] Error error_of(int result, std::string_view what) const;
  void give_up() noexcept;

  NcclApi api_;
  const CudaDriver* driver_;
  DeviceContext context_;
  int rank_;
  int size_;
  std::mutex in_use_;                      ///< held while a call works on comm_
  std::atomic<bool> abort_asked_ = false;  ///< by another thread; the holder of in_use_ acts on it
  NcclApi::Comm comm_ = nullptr;
  void* scratch_ = nullptr;  ///< one byte on the device, for barriers
  struct Registered {
    void* handle;
  };
  std::map<void*, Registered> memory_;  ///< memory of allocate()
};

}  // namespace amldist::collective
