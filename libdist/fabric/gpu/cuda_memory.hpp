// Memory of a GPU, to test what cannot be tested otherwise: whether a card reads it directly, and how fast NCCL is. The
// CUDA driver and NCCL are loaded at run time, in a process of their own that may be killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::fabric {

/// The functions of the CUDA driver in use, with the driver's own signatures: CUresult and CUdevice are int,
/// CUdeviceptr is an integer of a pointer's size, here a pointer.
struct CudaApi {
  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_address)(char*, int, int) = nullptr;  ///< "0000:01:00.0"
  int (*retain_context)(void**, int) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*release)(void*) = nullptr;
  int (*to_gpu)(void*, const void*, std::size_t) = nullptr;
  int (*from_gpu)(void*, void*, std::size_t) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_wait)(void*) = nullptr;
  int (*error_string)(int, const char**) = nullptr;
  int (*export_range)(void*, void*, std::size_t, int, unsigned long long) = nullptr;  ///< since 11.7

  /// "out of memory", or the number of the error.
  [[nodiscard]] std::string describe(int error) const;
};

/// Loads `named` if it is not empty, else libcuda.so.1, initialises it, and never unloads it. Errors: unavailable, in a
/// sentence.
[[nodiscard]] Result<CudaApi> load_cuda(const std::string& named);

/// The PCI addresses of the GPUs that this process may use, in CUDA's order and in lower case.
[[nodiscard]] std::vector<std::string> gpu_addresses(const CudaApi& api);

/// Memory on one GPU.
class CudaMemory {
 public:
  /// On the GPU with this number. Errors: unavailable.
  [[nodiscard]] static Result<CudaMemory> allocate(const CudaApi& api, int device, std::size_t bytes);
  CudaMemory(CudaMemory&& other) noexcept
      : api_(other.api_),
        context_(other.context_),
        address_(std::exchange(other.address_, nullptr)),
        bytes_(other.bytes_) {}
  CudaMemory& operator=(CudaMemory&&) = delete;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  [[nodiscard]] void* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Copies into the memory, and out of it, from byte `offset` on. Returns why it failed; empty on success.
  [[nodiscard]] std::string write(std::size_t offset, std::span<const std::byte> bytes) const;
  [[nodiscard]] std::string read(std::size_t offset, std::span<std::byte> bytes) const;
  /// A DMA-BUF of the memory; invalid if driver or GPU cannot make one.
  [[nodiscard]] FileDescriptor exported() const;

 private:
  CudaMemory(const CudaApi& api, void* context, void* address, std::size_t bytes)
      : api_(api), context_(context), address_(address), bytes_(bytes) {}

  CudaApi api_;
  void* context_ = nullptr;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace amldist::fabric
