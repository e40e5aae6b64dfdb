// The C functions on gradient reducers. No logic.
#include <memory>

#include "amldist/amldist.h"
#include "api/c/guard.hpp"
#include "api/c/handles.hpp"
#include "collective/buckets/gradient_reducer.hpp"

struct amldist_reducer {
  std::weak_ptr<amldist::collective::Communicator> comm;
  std::unique_ptr<amldist::collective::GradientReducer> impl;
};

namespace {

using amldist::Errc;
using amldist::Error;
using amldist::Result;
using amldist::api::guarded;
using amldist::collective::GradientReducer;
using amldist::collective::ReducerOptions;

Error refused(std::string_view why) { return {Errc::invalid_argument, "reducer: " + std::string(why)}; }

Result<ReducerOptions> to_options(const amldist_reducer_options* from) {
  ReducerOptions options;
  if (from == nullptr) return options;
  if (from->struct_size < sizeof(amldist_reducer_options)) {
    return refused("set struct_size to sizeof(amldist_reducer_options)");
  }
  const auto op = amldist::calls::to_reduce_op(from->op);
  if (!op) return refused(std::to_string(from->op) + " is not an amldist_op");
  options.op = *op;
  if (from->bucket_bytes != 0) options.limits.bytes = from->bucket_bytes;
  if (from->first_bucket_bytes != 0) options.limits.first_bytes = from->first_bucket_bytes;
  if (from->fuse_bytes != 0) options.fuse_bytes = from->fuse_bytes;
  return options;
}

static_assert(sizeof(amldist_reducer_options) == 40, "the layout of amldist_reducer_options is part of the ABI");

template <typename Body>
int with(amldist_reducer* reducer, Body body) {
  return guarded([&]() -> Result<void> {
    if (reducer == nullptr) return refused("it is NULL");
    const auto comm = reducer->comm.lock();
    if (!comm) return refused("its communicator was finalized before");
    if (!comm->is_here()) return amldist::api::forked();
    return body(*reducer->impl);
  });
}

}  // namespace

int amldist_reducer_create(amldist_comm* comm, const size_t* counts, size_t tensors, amldist_type type,
                           const amldist_reducer_options* options, amldist_reducer** reducer) {
  return guarded([&]() -> Result<void> {
    if (reducer == nullptr) return refused("the place for it is NULL");
    *reducer = nullptr;
    if (!amldist::api::is_usable(comm)) return amldist::api::refusal_of(comm);
    if (counts == nullptr && tensors != 0) return refused("the counts are NULL");
    const auto data_type = amldist::calls::to_data_type(static_cast<int>(type));
    if (!data_type) return refused(std::to_string(static_cast<int>(type)) + " is not an amldist_type");
    const auto wanted = to_options(options);
    if (!wanted) return wanted.error();
    if (!amldist::calls::can_combine(*data_type, wanted->op)) {
      return refused(std::string(to_string(*data_type)) + " cannot be combined by " +
                     std::string(to_string(wanted->op)));
    }
    auto made = GradientReducer::create(*comm->impl, {counts, tensors}, *data_type, *wanted);
    if (!made) return made.error();
    *reducer = new amldist_reducer{comm->impl, std::move(*made)};
    return {};
  });
}

int amldist_reducer_view(amldist_reducer* reducer, size_t tensor, void** data) {
  return with(reducer, [&](GradientReducer& impl) -> Result<void> {
    if (data == nullptr) return refused("the place for the view is NULL");
    const auto view = impl.view(tensor);
    if (!view) return view.error();
    *data = *view;
    return {};
  });
}

int amldist_reducer_bind(amldist_reducer* reducer, size_t tensor, void* data) {
  return with(reducer, [&](GradientReducer& impl) { return impl.bind(tensor, data); });
}

int amldist_reducer_ready(amldist_reducer* reducer, size_t tensor) {
  // Most gradients are not the last of their bucket; keeping the communicator alive would be most of the work.
  if (reducer != nullptr && !reducer->comm.expired() && reducer->impl->note(tensor)) return AMLDIST_OK;
  return with(reducer, [&](GradientReducer& impl) { return impl.ready(tensor); });
}

int amldist_reducer_wait(amldist_reducer* reducer) {
  return with(reducer, [](GradientReducer& impl) { return impl.wait(); });
}

int amldist_reducer_calls(amldist_reducer* reducer) {
  int calls = 0;
  const int status = with(reducer, [&](GradientReducer& impl) -> Result<void> {
    const auto made = impl.calls();
    if (!made) return made.error();
    calls = static_cast<int>(*made);
    return {};
  });
  return status == AMLDIST_OK ? calls : status;
}

int amldist_reducer_free(amldist_reducer* reducer) {
  return guarded([&]() -> Result<void> {
    const std::unique_ptr<amldist_reducer> owned(reducer);
    if (owned && owned->comm.expired()) owned->impl->abandon();
    return {};
  });
}
