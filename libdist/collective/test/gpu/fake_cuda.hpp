// A CUDA driver without GPUs: memory that is said to be a device's, streams that the fake NCCL drains.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "collective/gpu/cuda_driver.hpp"
#include "fake_nccl.hpp"

namespace amldist::testing {

struct FakeCuda {
  std::mutex mutex;
  std::map<std::uint64_t, int> devices;  ///< of an address; guarded by mutex
  std::map<std::uint64_t, unsigned> types;
  std::atomic<int> retained = 0;
  std::atomic<int> retain_fails = 0;
  std::atomic<int> stream_fails = 0;

  static FakeCuda& instance() {
    static FakeCuda cuda;
    return cuda;
  }
  /// This thread's stack of contexts.
  static std::vector<void*>& contexts() {
    thread_local std::vector<void*> stack;
    return stack;
  }
  static std::size_t depth() { return contexts().size(); }
};

inline collective::CudaDriver fake_cuda_driver() {
  collective::CudaDriver driver;
  driver.pointer_get_attribute = [](void* data, int attribute, unsigned long long pointer) {
    auto& cuda = FakeCuda::instance();
    const std::scoped_lock lock(cuda.mutex);
    constexpr int invalid_value = 1;
    if (!cuda.devices.contains(pointer)) return invalid_value;
    if (attribute == 2) *static_cast<unsigned*>(data) = cuda.types[pointer];
    else *static_cast<int*>(data) = cuda.devices[pointer];
    return 0;
  };
  driver.stream_query = [](void* stream) {
    constexpr int not_ready = 600;
    if (const int failure = FakeCuda::instance().stream_fails; failure != 0) return failure;
    return stream != nullptr && static_cast<FakeStream*>(stream)->pending > 0 ? not_ready : 0;
  };
  driver.primary_context_retain = [](void** context, int) {
    if (const int failure = FakeCuda::instance().retain_fails; failure != 0) return failure;
    *context = &FakeCuda::instance();
    ++FakeCuda::instance().retained;
    return 0;
  };
  driver.primary_context_release = [](int) {
    --FakeCuda::instance().retained;
    return 0;
  };
  driver.context_get = [](void** context) {
    const auto& stack = FakeCuda::contexts();
    *context = stack.empty() ? nullptr : stack.back();
    return 0;
  };
  driver.context_push = [](void* context) {
    FakeCuda::contexts().push_back(context);
    return 0;
  };
  driver.context_pop = [](void** context) {
    *context = FakeCuda::contexts().back();
    FakeCuda::contexts().pop_back();
    return 0;
  };
  driver.error_string = [](int, const char** words) {
    *words = "fake trouble";
    return 0;
  };
  return driver;
}

}  // namespace amldist::testing
