// aml-dist: gradient buckets in C++20, header-only over the C interface.
//
//   auto reducer = amldist::Reducer<float>::create(world, counts).value();
//   for (step...) {
//     for (layer = last...0) { backward(layer, reducer.view(layer).value()); must(reducer.ready(layer)); }
//     must(reducer.wait());
//   }
//
// Semantics, order and errors: amldist.h, "gradient buckets". Since 0.1.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "amldist/amldist.hpp"

namespace amldist {

struct ReducerOptions {
  std::size_t bucket_bytes = 0;        ///< 0: 25 MiB
  std::size_t first_bucket_bytes = 0;  ///< 0: 1 MiB
  std::size_t fuse_bytes =
      0;  ///< the caller's buffers up to this size are copied into a bucket; 0: chosen by the layout
  Op op = Op::avg;
};

/// All-reduces many tensors of T in few calls. Move-only; destroy it before its communicator.
template <Element T>
class Reducer {
 public:
  /// counts: elements of each tensor.
  [[nodiscard]] static Expected<Reducer> create(const Communicator& comm, std::span<const std::size_t> counts,
                                                const ReducerOptions& options = {}) {
    const amldist_reducer_options raw = {sizeof raw, options.bucket_bytes, options.first_bucket_bytes,
                                         options.fuse_bytes, static_cast<int>(options.op)};
    amldist_reducer* reducer = nullptr;
    const int status = amldist_reducer_create(comm.get(), counts.data(), counts.size(),
                                              static_cast<amldist_type>(type_of<T>), &raw, &reducer);
    if (status != AMLDIST_OK) return Status::of(status);
    return Reducer(reducer, {counts.begin(), counts.end()});
  }

  /// A tensor's memory in its bucket, valid as long as the reducer.
  [[nodiscard]] Expected<std::span<T>> view(std::size_t tensor) {
    void* data = nullptr;
    const int status = amldist_reducer_view(reducer_.get(), tensor, &data);
    if (status != AMLDIST_OK) return Status::of(status);
    return std::span<T>(static_cast<T*>(data), counts_[tensor]);
  }
  /// The tensor is the caller's own buffer, which must have the tensor's length.
  Status bind(std::size_t tensor, std::span<T> data) {
    if (tensor < counts_.size() && data.size() != counts_[tensor]) {
      return {AMLDIST_EINVAL, "bind: the span and the tensor differ in length"};
    }
    return Status::of(amldist_reducer_bind(reducer_.get(), tensor, data.data()));
  }
  Status ready(std::size_t tensor) { return Status::of(amldist_reducer_ready(reducer_.get(), tensor)); }
  /// Collective calls per step. Fixes the layout as the first view does.
  [[nodiscard]] Expected<int> calls() {
    const int calls = amldist_reducer_calls(reducer_.get());
    if (calls < 0) return Status::of(calls);
    return calls;
  }
  Status wait() { return Status::of(amldist_reducer_wait(reducer_.get())); }

 private:
  struct Free {
    void operator()(amldist_reducer* reducer) const noexcept { static_cast<void>(amldist_reducer_free(reducer)); }
  };
  Reducer(amldist_reducer* reducer, std::vector<std::size_t> counts) : reducer_(reducer), counts_(std::move(counts)) {}

  std::unique_ptr<amldist_reducer, Free> reducer_;
  std::vector<std::size_t> counts_;
};

}  // namespace amldist
