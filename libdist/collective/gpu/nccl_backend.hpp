// Collectives on device buffers over NCCL, without ever waiting longer than a deadline.
//
// The communicator is non-blocking: every NCCL call returns at once, and what it came to is asked for until it is
// known, the watchdog says stop, or somebody aborts. Whatever goes wrong ends with ncclCommAbort on every rank, which
// is what makes the kernels of the survivors return.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "collective/calls/backend.hpp"
#include "collective/gpu/cuda_driver.hpp"
#include "collective/gpu/nccl_api.hpp"

namespace amldist::collective {

class NcclBackend final : public Backend {
 public:
  /// What all ranks of a communicator do when its first device buffer comes along; collective over `exchange`. Rank 0's
  /// id travels by it, and what each rank found, so that all ranks fail alike and with a sentence that names the rank
  /// without NCCL, with another major release, or that did not come up before the deadline. `api` is this rank's own
  /// result of load_nccl(); `device` the GPU of this rank's buffer; `driver` outlives the back end.
  [[nodiscard]] static Result<std::unique_ptr<NcclBackend>> create(Result<NcclApi> api, const CudaDriver& driver,
                                                                   int device, Exchange& exchange,
                                                                   Clock::time_point deadline);

  ~NcclBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  [[nodiscard]] int device() const noexcept { return context_.device(); }
  [[nodiscard]] const DeviceContext& context() const noexcept { return context_; }

  /// Errors: NCCL has nothing for this call. Such a call is not made, and does no harm.
  [[nodiscard]] static Result<void> supports(const Call& call);

  [[nodiscard]] Result<void> run(const Call& call, Watchdog& watchdog) override;
  [[nodiscard]] Result<void> run_group(std::span<const Call> messages, Watchdog& watchdog) override;
  [[nodiscard]] Result<void> synchronize(void* stream, Watchdog& watchdog) override;
  [[nodiscard]] Result<bool> is_complete(void* stream) override;
  /// Whether NCCL has reported an error since; never waits. Errors as those of is_complete().
  [[nodiscard]] Result<void> health();

  /// Device memory that NCCL has registered: transports use it without a copy.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes) override;
  [[nodiscard]] Result<void> release(void* memory) override;

  /// A communicator of the ranks that gave the same colour, ordered by key; collective. A negative colour: nullptr.
  /// Shares this one's connections where NCCL can.
  [[nodiscard]] Result<std::unique_ptr<NcclBackend>> split(int color, int key, int new_rank, int new_size,
                                                           Watchdog& watchdog);

  void abort() noexcept override;

 private:
  NcclBackend(NcclApi api, const CudaDriver& driver, DeviceContext context, int rank, int size);

  [[nodiscard]] Result<void> start(const NcclUniqueId& id, Clock::time_point deadline);
  [[nodiscard]] Result<void> ask_for_trouble();
  [[nodiscard]] int enqueue(const Call& call);
  [[nodiscard]] int enqueue_pieces(const Call& call);
  [[nodiscard]] int enqueue_broadcasts(const Call& call);
  [[nodiscard]] int enqueue_message(const Call& message);
  [[nodiscard]] int barrier(void* stream);
  template <typename Enqueue>
  [[nodiscard]] int grouped(Enqueue enqueue);
  template <typename KeepWaiting>
  [[nodiscard]] Result<void> settle(int result, std::string_view what, KeepWaiting keep_waiting);
  [[nodiscard]] Result<void> settle(int result, std::string_view what, Watchdog& watchdog);
  [[nodiscard]] Result<void> end(Result<void> result);
  [[nodiscard]] Error error_of(int result, std::string_view what) const;
  void give_up() noexcept;

  NcclApi api_;
  const CudaDriver* driver_;
  DeviceContext context_;
  int rank_;
  int size_;
  std::mutex in_use_;                      ///< held while a call works on comm_
  std::atomic<bool> abort_asked_ = false;  ///< by another thread; whoever holds in_use_ acts on it
  NcclApi::Comm comm_ = nullptr;
  void* scratch_ = nullptr;  ///< one byte on the device, for barriers
  struct Registered {
    void* handle;
  };
  std::map<void*, Registered> memory_;  ///< what allocate() gave
};

}  // namespace amldist::collective
