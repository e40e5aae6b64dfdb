// All-reduce of many gradients in few calls, overlapped with the computation of the rest.
//
// A gradient is either a view into its bucket, written there by the caller and reduced without a copy, or a buffer that
// the caller owns. Small own buffers are fused: copied into a bucket as far as other ranks need them, if that costs
// less than a call. Larger ones are reduced in place.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collective/buckets/bucket_plan.hpp"
#include "collective/communicator/communicator.hpp"
#include "collective/gpu/cuda_driver.hpp"

namespace amldist::collective {

struct ReducerOptions {
  BucketLimits limits;
  /// Own buffers up to this size are copied together; the default is what tests/bench found best for the layout.
  std::optional<std::size_t> fuse_bytes;
  calls::ReduceOp op = calls::ReduceOp::avg;
};

/// Belongs to one communicator and must not outlive it. One thread at a time. Every rank makes the same calls, on
/// tensors in any order; buckets are launched in one order.
class GradientReducer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<GradientReducer>> create(Communicator& comm,
                                                                       std::span<const std::size_t> counts,
                                                                       calls::DataType type,
                                                                       const ReducerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  [[nodiscard]] std::size_t tensors() const noexcept { return tensors_.size(); }
  /// Calls per step. Fixes the layout.
  [[nodiscard]] Result<std::size_t> calls();

  /// Memory of a gradient in its bucket, aligned to 64 bytes, the same until the end. Fixes the layout.
  [[nodiscard]] Result<void*> view(std::size_t tensor);
  /// Declares that the gradient is in the caller's `data`. The first time before the layout is fixed; again at any time
  /// between two steps.
  [[nodiscard]] Result<void> bind(std::size_t tensor, void* data);
  /// ready(), if that launches nothing: then the communicator is not used. False: nothing was done.
  [[nodiscard]] bool note(std::size_t tensor) noexcept;
  /// This rank's gradient is complete and stays untouched until wait(). Launches the units that are complete.
  [[nodiscard]] Result<void> ready(std::size_t tensor);
  /// Waits until all gradients hold the result; the next step may then begin. Errors: a tensor was never ready (named),
  /// and those of an all-reduce.
  [[nodiscard]] Result<void> wait();
  /// The communicator was destroyed, and the buckets' memory with it: this object can now only be destroyed.
  void abandon() noexcept { buckets_.clear(); }

 private:
  struct Tensor {
    std::size_t count = 0;
    void* data = nullptr;    ///< the caller's, or the view
    bool own = false;        ///< it belongs to the caller
    bool on_device = false;  ///< in a GPU's memory, which the host cannot copy
    bool ready = false;
    std::size_t unit = 0;
  };
  struct Bucket {
    Unit plan;
    std::byte* memory = nullptr;
    std::vector<std::byte> private_memory;  ///< if the communicator has no such memory
    calls::BufferSegments segments;         ///< the caller's own buffers and the views between them; empty: views only
    bool segments_are_listed = false;
    std::size_t missing = 0;          ///< number of tensors that are not ready
    std::uint64_t launched_at = 0;    ///< nanoseconds
    bool waited_for_at_once = false;  ///< in the last step
    RequestPtr request;
  };

  GradientReducer(Communicator& comm, calls::DataType type, const ReducerOptions& options);
  [[nodiscard]] std::size_t bytes_of(const Tensor& tensor) const noexcept { return tensor.count * size_of(type_); }
  [[nodiscard]] Result<void> lay_out();
  [[nodiscard]] Result<void> take_memory(Bucket& bucket);
  void list_segments(Bucket& bucket) const;
  [[nodiscard]] Result<void> launch(Bucket& bucket);
  [[nodiscard]] Result<void> launch_complete();
  [[nodiscard]] Error unknown(std::size_t tensor) const;
  void begin_step();
  void learn_from_wait();

  Communicator& comm_;
  calls::DataType type_;
  ReducerOptions options_;
  std::size_t fuse_bytes_;
  CudaProbe cuda_;
  std::vector<Tensor> tensors_;
  std::vector<Bucket> buckets_;  ///< in launching order; empty until the layout is fixed
  bool laid_out_ = false;
  std::size_t launched_ = 0;
};

}  // namespace amldist::collective
