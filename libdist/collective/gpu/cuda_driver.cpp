#include "collective/gpu/cuda_driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <utility>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

// From cuda.h; part of the driver's ABI.
constexpr int attribute_memory_type = 2;
constexpr int attribute_device_ordinal = 9;
constexpr unsigned memory_device = 2;
constexpr unsigned memory_unified = 4;

constexpr std::uint64_t look_every_ns = 10'000'000;

/// Resolves a function; leaves nullptr if it is missing.
template <typename Function>
bool take(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

/// How many shared objects the process has loaded so far.
std::uint64_t objects_loaded() noexcept {
  std::uint64_t number = 0;
  const auto note = [](dl_phdr_info* info, std::size_t /*size*/, void* out) {
    *static_cast<std::uint64_t*>(out) = info->dlpi_adds;
    return 1;
  };
  static_cast<void>(::dl_iterate_phdr(note, &number));
  return number;
}

}  // namespace

Result<CudaDriver> CudaDriver::bind(void* library) {
  CudaDriver driver;
  const bool all =
      take(library, "cuPointerGetAttribute", driver.pointer_get_attribute) &&
      take(library, "cuStreamQuery", driver.stream_query) &&
      take(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain) &&
      take(library, "cuDevicePrimaryCtxRelease_v2", driver.primary_context_release) &&
      take(library, "cuCtxGetCurrent", driver.context_get) &&
      take(library, "cuCtxPushCurrent_v2", driver.context_push) &&
      take(library, "cuCtxPopCurrent_v2", driver.context_pop) &&
      take(library, "cuStreamIsCapturing", driver.stream_is_capturing) &&
      take(library, "cuEventCreate", driver.event_create) && take(library, "cuEventRecord", driver.event_record) &&
      take(library, "cuEventQuery", driver.event_query) && take(library, "cuEventDestroy_v2", driver.event_destroy) &&
      take(library, "cuGetErrorString", driver.error_string);
  if (all) return driver;
  return Error{Errc::unavailable,
               "the CUDA driver lacks functions that aml-dist needs: install a driver for CUDA 11 or newer"};
}

std::string CudaDriver::describe(int error) const {
  const char* words = nullptr;
  if (error_string == nullptr || error_string(error, &words) != 0 || words == nullptr) {
    return concat({"CUDA error ", std::to_string(error)});
  }
  return words;
}

std::optional<int> device_of(const CudaDriver& driver, const void* pointer) noexcept {
  const auto address = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(pointer));
  unsigned type = 0;
  if (pointer == nullptr || driver.pointer_get_attribute(&type, attribute_memory_type, address) != 0)
    return std::nullopt;
  if (type != memory_device && type != memory_unified) return std::nullopt;
  int device = -1;
  if (driver.pointer_get_attribute(&device, attribute_device_ordinal, address) != 0 || device < 0) return std::nullopt;
  return device;
}

const CudaDriver* CudaProbe::search(std::uint64_t now_ns) noexcept {
  next_look_ns_.store(now_ns + look_every_ns, std::memory_order_relaxed);
  // A failed lookup goes through the file system and takes as long as a small collective.
  const std::uint64_t objects = objects_loaded();
  if (objects_seen_.exchange(objects, std::memory_order_relaxed) == objects) return nullptr;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  try {
    // One table for the life of the process, because the driver cannot be unloaded either.
    static const Result<CudaDriver> driver = CudaDriver::bind(library);
    if (driver) found_.store(&*driver, std::memory_order_release);
  } catch (...) {  // out of memory: the next lookup may succeed
  }
  return found_.load(std::memory_order_acquire);
}

Result<DeviceContext> DeviceContext::retain(const CudaDriver& driver, int device) {
  DeviceContext made;
  const int problem = driver.primary_context_retain(&made.context_, device);
  if (problem != 0) {
    return Error{Errc::unavailable,
                 concat({"GPU ", std::to_string(device), " cannot be used: ", driver.describe(problem)})};
  }
  made.driver_ = &driver;
  made.device_ = device;
  return made;
}

DeviceContext::DeviceContext(DeviceContext&& other) noexcept { *this = std::move(other); }

DeviceContext& DeviceContext::operator=(DeviceContext&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(device_, other.device_);
  return *this;
}

DeviceContext::~DeviceContext() {
  if (driver_ != nullptr) driver_->primary_context_release(device_);
}

DeviceContext::Current::Current(const DeviceContext& context) noexcept {
  const CudaDriver* const driver = context.driver_;
  if (driver == nullptr) return;
  void* current = nullptr;
  if (driver->context_get(&current) == 0 && current == context.context_) return;
  if (driver->context_push(context.context_) == 0) driver_ = driver;
}

DeviceContext::Current::~Current() {
  void* popped = nullptr;
  if (driver_ != nullptr) driver_->context_pop(&popped);
}

}  // namespace amldist::collective
