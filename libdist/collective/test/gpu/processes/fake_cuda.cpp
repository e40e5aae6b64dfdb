// A CUDA without GPUs for whole processes: built as libcuda.so.1, so that the library finds it where it looks for the
// driver. Memory is the host's and known by its range; a stream is a thread that works off a queue. The runtime's few
// functions that programs call are here, too.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fake_stream.hpp"

namespace {

constexpr int success = 0, invalid_value = 1, invalid_context = 201, not_ready = 600;

/// Works off what is enqueued, in order. Never ends: a process's streams go with it.
class Stream {
 public:
  void enqueue(std::function<void()> work) {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(work));
    ++enqueued_;
    if (enqueued_ == 1) std::thread([this] { run(); }).detach();
    changed_.notify_all();
  }
  [[nodiscard]] std::uint64_t enqueued() {
    const std::scoped_lock lock(mutex_);
    return enqueued_;
  }
  [[nodiscard]] bool has_passed(std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    return done_ >= number;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == enqueued_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t done_ = 0;
};

/// A place in a stream: reached when that has done as much as was enqueued.
struct Event {
  Stream* stream = nullptr;
  std::uint64_t number = 0;
};

struct Device {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> memory;  ///< begin and bytes
  static Device& instance() {
    static auto* const device = new Device;  // outlives the streams' threads
    return *device;
  }
};

Stream& stream_of(void* stream) {
  static auto* const usual = new Stream;
  return stream != nullptr ? *static_cast<Stream*>(stream) : *usual;
}

bool is_of_device(std::uintptr_t address) {
  auto& device = Device::instance();
  const std::scoped_lock lock(device.mutex);
  const auto behind = device.memory.upper_bound(address);
  if (behind == device.memory.begin()) return false;
  const auto& [begin, bytes] = *std::prev(behind);
  return address < begin + std::max<std::size_t>(bytes, 1);
}

/// This thread's stack of contexts.
std::vector<void*>& contexts() {
  thread_local std::vector<void*> stack;
  return stack;
}

}  // namespace

namespace amldist::testing {

void enqueue_on_stream(void* stream, std::function<void()> work) { stream_of(stream).enqueue(std::move(work)); }

void* allocate_on_device(std::size_t bytes) {
  void* const memory = std::calloc(1, std::max<std::size_t>(bytes, 1));
  auto& device = Device::instance();
  const std::scoped_lock lock(device.mutex);
  device.memory[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
  return memory;
}

void free_on_device(void* memory) {
  auto& device = Device::instance();
  const std::scoped_lock lock(device.mutex);
  device.memory.erase(reinterpret_cast<std::uintptr_t>(memory));
  std::free(memory);
}

}  // namespace amldist::testing

#define EXPORT extern "C" __attribute__((visibility("default")))

// ---- driver ----
EXPORT int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  constexpr int memory_type = 2;
  constexpr unsigned device_memory = 2;
  if (!is_of_device(static_cast<std::uintptr_t>(pointer))) return invalid_value;
  if (attribute == memory_type) *static_cast<unsigned*>(data) = device_memory;
  else *static_cast<int*>(data) = 0;
  return success;
}
EXPORT int cuStreamQuery(void* stream) {
  Stream& asked = stream_of(stream);
  return asked.has_passed(asked.enqueued()) ? success : not_ready;
}
EXPORT int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = 0;
  return success;
}
EXPORT int cuEventCreate(void** event, unsigned /*flags*/) {
  if (contexts().empty()) return invalid_context;
  *event = new Event;
  return success;
}
EXPORT int cuEventRecord(void* event, void* stream) {
  if (contexts().empty()) return invalid_context;
  Stream& asked = stream_of(stream);
  *static_cast<Event*>(event) = {&asked, asked.enqueued()};
  return success;
}
EXPORT int cuEventQuery(void* event) {
  const auto* const asked = static_cast<const Event*>(event);
  return asked->stream == nullptr || asked->stream->has_passed(asked->number) ? success : not_ready;
}
EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return success;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int /*device*/) {
  *context = &Device::instance();
  return success;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int /*device*/) { return success; }
EXPORT int cuCtxGetCurrent(void** context) {
  *context = contexts().empty() ? nullptr : contexts().back();
  return success;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  contexts().push_back(context);
  return success;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  *context = contexts().back();
  contexts().pop_back();
  return success;
}
EXPORT int cuGetErrorString(int /*error*/, const char** words) {
  *words = "pretended trouble";
  return success;
}

// ---- runtime ----
EXPORT int cudaGetDeviceCount(int* count) {
  *count = 1;
  return success;
}
EXPORT int cudaSetDevice(int /*device*/) {
  contexts().assign(1, &Device::instance());
  return success;
}
EXPORT int cudaMalloc(void** memory, std::size_t bytes) {
  *memory = amldist::testing::allocate_on_device(bytes);
  return success;
}
EXPORT int cudaFree(void* memory) {
  amldist::testing::free_on_device(memory);
  return success;
}
EXPORT int cudaMemcpy(void* to, const void* from, std::size_t bytes, int /*kind*/) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return success;
}
EXPORT int cudaStreamCreate(void** stream) {
  *stream = new Stream;
  return success;
}
EXPORT int cudaStreamSynchronize(void* stream) {
  stream_of(stream).wait();
  return success;
}
EXPORT int cudaStreamDestroy(void* stream) {
  stream_of(stream).wait();
  return success;  // its thread still looks at it
}
EXPORT const char* cudaGetErrorString(int /*error*/) { return "pretended trouble"; }
