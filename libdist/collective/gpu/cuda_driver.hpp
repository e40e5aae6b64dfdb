// The few functions of the CUDA driver that a communicator needs, resolved at run time. So the library loads, and host
// buffers work, without CUDA.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/text/result.hpp"

namespace amldist::collective {

/// Table of driver functions with the driver's own signatures (CUresult and CUdevice are int, handles are pointers).
/// Tests fill it with fakes.
struct CudaDriver {
  int (*pointer_get_attribute)(void* data, int attribute, unsigned long long pointer) = nullptr;
  int (*stream_query)(void* stream) = nullptr;
  int (*primary_context_retain)(void** context, int device) = nullptr;
  int (*primary_context_release)(int device) = nullptr;
  int (*context_get)(void** context) = nullptr;
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;
  int (*stream_is_capturing)(void* stream, int* status) = nullptr;
  int (*event_create)(void** event, unsigned flags) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*error_string)(int error, const char** words) = nullptr;

  /// Resolves the functions in a library that the process has loaded. Errors: a function is missing.
  [[nodiscard]] static Result<CudaDriver> bind(void* library);

  /// "out of memory", or the number of the error.
  [[nodiscard]] std::string describe(int error) const;
};

/// The device that a pointer belongs to; nullopt for host memory and if CUDA was never initialised.
[[nodiscard]] std::optional<int> device_of(const CudaDriver& driver, const void* pointer) noexcept;

/// Finds the driver once the process has loaded it. Before that no device pointer can exist, so this library never
/// loads the driver itself. A lookup searches all loaded objects, so it happens at most every 10 ms; between dlopen of
/// the driver and the first device pointer more time passes (cuInit and a context). Thread-safe.
class CudaProbe {
 public:
  /// nullptr: not loaded. `now_ns`: any steady clock. Costs a few nanoseconds.
  [[nodiscard]] const CudaDriver* look(std::uint64_t now_ns) noexcept {
    const CudaDriver* const found = found_.load(std::memory_order_acquire);
    const bool is_known = found != nullptr || now_ns < next_look_ns_.load(std::memory_order_relaxed);
    return is_known ? found : search(now_ns);
  }

 private:
  [[nodiscard]] const CudaDriver* search(std::uint64_t now_ns) noexcept;

  std::atomic<const CudaDriver*> found_ = nullptr;
  std::atomic<std::uint64_t> next_look_ns_ = 0;
  std::atomic<std::uint64_t> objects_seen_ = 0;  ///< number of objects at the last lookup
};

/// Retains a device's primary context, which the runtime API and every framework use.
class DeviceContext {
 public:
  [[nodiscard]] static Result<DeviceContext> retain(const CudaDriver& driver, int device);

  DeviceContext(DeviceContext&& other) noexcept;
  DeviceContext& operator=(DeviceContext&& other) noexcept;
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  ~DeviceContext();

  [[nodiscard]] int device() const noexcept { return device_; }

  /// Makes the context current for this thread during its lifetime. In most programs it already is.
  class Current {
   public:
    explicit Current(const DeviceContext& context) noexcept;
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current();

   private:
    const CudaDriver* driver_ = nullptr;  ///< nullptr: nothing to undo
  };

 private:
  DeviceContext() = default;
  const CudaDriver* driver_ = nullptr;
  void* context_ = nullptr;
  int device_ = -1;
};

}  // namespace amldist::collective
