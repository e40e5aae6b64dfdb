#include "collective/buckets/gradient_reducer.hpp"

#include <algorithm>
#include <limits>

#include "base/text/text.hpp"
#include "base/time/tick_clock.hpp"

namespace amldist::collective {
namespace {

using text::concat;

// A call costs about as much as copying this many bytes there and back, within a node and between nodes.
constexpr std::size_t fuse_in_a_node = std::size_t{32} << 10;
constexpr std::size_t fuse_between_nodes = std::size_t{64} << 10;

// If less than this lies between launch and wait, nothing can overlap: waking the progress thread takes about as long.
constexpr std::uint64_t at_once_ns = 200'000;

}  // namespace

GradientReducer::GradientReducer(Communicator& comm, calls::DataType type, const ReducerOptions& options)
    : comm_(comm),
      type_(type),
      options_(options),
      fuse_bytes_(options.fuse_bytes.value_or(comm.identity().nodes > 1 ? fuse_between_nodes : fuse_in_a_node)) {}

Result<std::unique_ptr<GradientReducer>> GradientReducer::create(Communicator& comm,
                                                                 std::span<const std::size_t> counts,
                                                                 calls::DataType type, const ReducerOptions& options) {
  std::unique_ptr<GradientReducer> made(new GradientReducer(comm, type, options));
  std::size_t left = std::numeric_limits<std::size_t>::max() / 4;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > left / size_of(type)) {
      return Error{Errc::limit, concat({"the gradients up to tensor ", std::to_string(i), " exceed any memory"})};
    }
    left -= counts[i] * size_of(type);
    Tensor tensor;
    tensor.count = counts[i];
    made->tensors_.push_back(tensor);
  }
  return made;
}

GradientReducer::~GradientReducer() {
  for (Bucket& bucket : buckets_) {
    if (bucket.request) bucket.request->wait();
    const bool shared = bucket.memory != nullptr && bucket.private_memory.empty();
    if (shared) static_cast<void>(comm_.release(bucket.memory));
  }
}

Error GradientReducer::unknown(std::size_t tensor) const {
  return {Errc::invalid_argument, concat({"tensor ", std::to_string(tensor), " is not one of the reducer's ",
                                          std::to_string(tensors_.size())})};
}

Result<void> GradientReducer::take_memory(Bucket& bucket) {
  if (bucket.plan.bytes == 0) return {};
  auto shared = comm_.allocate(bucket.plan.bytes);
  if (shared) {
    bucket.memory = static_cast<std::byte*>(*shared);
    return {};
  }
  // Slower, because every call must copy, but correct.
  bucket.private_memory.resize(bucket.plan.bytes + bucket_alignment);
  void* memory = bucket.private_memory.data();
  std::size_t room = bucket.private_memory.size();
  bucket.memory = static_cast<std::byte*>(std::align(bucket_alignment, bucket.plan.bytes, memory, room));
  return {};
}

Result<void> GradientReducer::lay_out() {
  if (laid_out_) return {};
  std::vector<PlannedTensor> planned;
  for (const Tensor& tensor : tensors_) {
    planned.push_back({bytes_of(tensor), tensor.own && (tensor.on_device || bytes_of(tensor) > fuse_bytes_)});
  }
  for (Unit& unit : plan_buckets(planned, options_.limits)) {
    Bucket bucket;
    bucket.plan = std::move(unit);
    if (auto status = take_memory(bucket); !status) return status;
    for (const Placement& place : bucket.plan.tensors) {
      Tensor& tensor = tensors_[place.tensor];
      tensor.unit = buckets_.size();
      if (!tensor.own) tensor.data = bucket.memory + place.offset;
    }
    buckets_.push_back(std::move(bucket));
  }
  laid_out_ = true;
  begin_step();
  return {};
}

void GradientReducer::begin_step() {
  launched_ = 0;
  for (Tensor& tensor : tensors_) tensor.ready = false;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.plan.tensors.size();
    bucket.request.reset();
  }
}

Result<std::size_t> GradientReducer::calls() {
  if (auto status = lay_out(); !status) return status.error();
  std::size_t calls = 0;
  for (const Bucket& bucket : buckets_) calls += bucket.plan.calls();
  return calls;
}

Result<void*> GradientReducer::view(std::size_t tensor) {
  if (tensor >= tensors_.size()) return unknown(tensor);
  if (tensors_[tensor].own) {
    return Error{Errc::invalid_argument,
                 concat({"tensor ", std::to_string(tensor), " is bound to the caller's memory"})};
  }
  if (auto status = lay_out(); !status) return status.error();
  return tensors_[tensor].data;
}

Result<void> GradientReducer::bind(std::size_t tensor, void* data) {
  if (tensor >= tensors_.size()) return unknown(tensor);
  Tensor& bound = tensors_[tensor];
  const std::string name = concat({"tensor ", std::to_string(tensor)});
  if (data == nullptr && bound.count != 0) return Error{Errc::invalid_argument, concat({name, ": its memory is NULL"})};
  if (laid_out_ && !bound.own) {
    return Error{Errc::invalid_argument, concat({name, " has a view already: bind before the first view or step"})};
  }
  if (bound.ready) return Error{Errc::invalid_argument, concat({name, " is being reduced: bind it after the wait"})};
  const CudaDriver* const driver = cuda_.look(TickClock::monotonic_ns());
  const bool on_device = driver != nullptr && device_of(*driver, data).has_value();
  if (laid_out_ && on_device != bound.on_device) {
    return Error{Errc::invalid_argument, concat({name, " was bound to memory of the other kind (host, GPU) before"})};
  }
  bound.own = true;
  bound.on_device = on_device;
  bound.data = data;
  if (laid_out_) buckets_[bound.unit].segments_are_listed = false;
  return {};
}

/// Where the bucket's gradients are. Consecutive views form one part.
void GradientReducer::list_segments(Bucket& bucket) const {
  bucket.segments.clear();
  bucket.segments_are_listed = true;
  const auto is_own = [this](const Placement& place) { return tensors_[place.tensor].own; };
  if (bucket.plan.alone || std::ranges::none_of(bucket.plan.tensors, is_own)) return;
  bool behind_view = false;
  for (const Placement& place : bucket.plan.tensors) {
    const Tensor& tensor = tensors_[place.tensor];
    if (tensor.count == 0) continue;
    if (behind_view && !tensor.own)
      bucket.segments.back().bytes = place.offset + bytes_of(tensor) - bucket.segments.back().offset;
    else bucket.segments.push_back({place.offset, bytes_of(tensor), static_cast<std::byte*>(tensor.data)});
    behind_view = !tensor.own;
  }
}

Result<void> GradientReducer::launch(Bucket& bucket) {
  calls::Call call;
  call.operation = calls::Operation::allreduce;
  call.type = type_;
  call.redop = options_.op;
  std::vector<calls::Call> calls;
  if (bucket.plan.alone) {
    for (const Placement& place : bucket.plan.tensors) {
      const Tensor& tensor = tensors_[place.tensor];
      call.send = call.recv = tensor.data;
      call.count = tensor.count;
      calls.push_back(call);
    }
  } else {
    if (!bucket.segments_are_listed) list_segments(bucket);
    call.segments = bucket.segments.empty() ? nullptr : &bucket.segments;
    call.send = call.recv = bucket.memory;
    call.count = bucket.plan.bytes / size_of(type_);
    calls.push_back(call);
  }
  bucket.launched_at = TickClock::monotonic_ns();
  auto begun = comm_.begin(std::move(calls), bucket.waited_for_at_once ? ProgressBy::waiter : ProgressBy::engine);
  if (!begun) return begun.error();
  bucket.request = std::move(*begun);
  return {};
}

bool GradientReducer::note(std::size_t tensor) noexcept {
  if (!laid_out_ || tensor >= tensors_.size() || tensors_[tensor].ready) return false;
  std::size_t& missing = buckets_[tensors_[tensor].unit].missing;
  if (missing == 1) return false;
  --missing;
  return tensors_[tensor].ready = true;
}

Result<void> GradientReducer::ready(std::size_t tensor) {
  if (note(tensor)) return {};
  if (tensor >= tensors_.size()) return unknown(tensor);
  if (auto status = lay_out(); !status) return status;
  if (std::exchange(tensors_[tensor].ready, true)) {
    return Error{Errc::invalid_argument, concat({"tensor ", std::to_string(tensor), " was ready before in this step"})};
  }
  --buckets_[tensors_[tensor].unit].missing;
  return launch_complete();
}

/// All ranks use one order, independent of the order in which each of them computes.
Result<void> GradientReducer::launch_complete() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) {
    if (auto status = launch(buckets_[launched_]); !status) return status;
    ++launched_;
  }
  return {};
}

/// Steps are alike: a program that waited at once will do so again, and its own thread then drives the progress engine.
/// When a program computes in between for the first time, it loses the overlap of one step.
void GradientReducer::learn_from_wait() {
  const std::uint64_t now = TickClock::monotonic_ns();
  for (Bucket& bucket : buckets_) bucket.waited_for_at_once = now - bucket.launched_at < at_once_ns;
}

Result<void> GradientReducer::wait() {
  if (auto status = lay_out(); !status) return status;
  const auto late = std::ranges::find(tensors_, false, &Tensor::ready);
  if (late != tensors_.end()) {
    return Error{Errc::invalid_argument, concat({"tensor ", std::to_string(late - tensors_.begin()),
                                                 " was not marked ready in this step: mark every "
                                                 "gradient, also those that this rank does not use"})};
  }
  if (auto status = launch_complete(); !status) return status;  // those that ready() could not
  learn_from_wait();
  // Waits for the last one first: this thread then runs the remaining calls without interruption, on its own processor.
  if (!buckets_.empty()) buckets_.back().request->wait();
  Result<void> all;
  for (Bucket& bucket : buckets_) {
    bucket.request->wait();
    if (all && !bucket.request->result()) all = bucket.request->result();
  }
  begin_step();
  return all;
}

}  // namespace amldist::collective
