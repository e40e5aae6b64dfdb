#include "fabric/gpu/cuda_memory.hpp"

#include <array>

#include "base/text/text.hpp"
#include "fabric/facts/vendor_library.hpp"

namespace amldist::fabric {

using text::concat;

std::string CudaApi::describe(int error) const {
  const char* words = nullptr;
  if (error_string != nullptr && error_string(error, &words) == 0 && words != nullptr) return words;
  return concat({"error ", std::to_string(error)});
}

Result<CudaApi> load_cuda(const std::string& named) {
  static constexpr std::array names = {"libcuda.so.1"};
  VendorLibrary library(named, names);
  CudaApi api;
  library.find(api.init, "cuInit");
  library.find(api.device_count, "cuDeviceGetCount");
  library.find(api.device_address, "cuDeviceGetPCIBusId");
  library.find(api.retain_context, "cuDevicePrimaryCtxRetain");
  library.find(api.set_context, "cuCtxSetCurrent");
  library.find(api.allocate, "cuMemAlloc_v2");
  library.find(api.release, "cuMemFree_v2");
  library.find(api.to_gpu, "cuMemcpyHtoD_v2");
  library.find(api.from_gpu, "cuMemcpyDtoH_v2");
  library.find(api.stream_create, "cuStreamCreate");
  library.find(api.stream_wait, "cuStreamSynchronize");
  library.find_optional(api.error_string, "cuGetErrorString");
  library.find_optional(api.export_range, "cuMemGetHandleForAddressRange");
  if (const auto status = library.is_whole(); !status) return status.error();
  if (const int got = api.init(0); got != 0) {
    return Error{Errc::unavailable, concat({"the CUDA driver does not start: ", api.describe(got)})};
  }
  return api;
}

std::vector<std::string> gpu_addresses(const CudaApi& api) {
  std::vector<std::string> out;
  int count = 0;
  if (api.device_count(&count) != 0) return out;
  for (int device = 0; device < count; ++device) {
    std::array<char, 64> address{};
    static_cast<void>(api.device_address(address.data(), static_cast<int>(address.size()) - 1, device));
    out.push_back(text::to_lower(address.data()));
  }
  return out;
}

Result<CudaMemory> CudaMemory::allocate(const CudaApi& api, int device, std::size_t bytes) {
  void* context = nullptr;
  void* memory = nullptr;
  int got = api.retain_context(&context, device);
  if (got == 0) got = api.set_context(context);
  if (got == 0) got = api.allocate(&memory, bytes);
  if (got != 0)
    return Error{Errc::unavailable, concat({"no memory on GPU ", std::to_string(device), ": ", api.describe(got)})};
  return CudaMemory(api, context, memory, bytes);
}

CudaMemory::~CudaMemory() {
  if (address_ == nullptr) return;
  static_cast<void>(api_.set_context(context_));
  static_cast<void>(api_.release(address_));
}

std::string CudaMemory::write(std::size_t offset, std::span<const std::byte> bytes) const {
  static_cast<void>(api_.set_context(context_));
  const int status = api_.to_gpu(static_cast<std::byte*>(address_) + offset, bytes.data(), bytes.size());
  return status == 0 ? std::string() : concat({"copying to the GPU: ", api_.describe(status)});
}

std::string CudaMemory::read(std::size_t offset, std::span<std::byte> bytes) const {
  static_cast<void>(api_.set_context(context_));
  const int status = api_.from_gpu(bytes.data(), static_cast<std::byte*>(address_) + offset, bytes.size());
  return status == 0 ? std::string() : concat({"copying from the GPU: ", api_.describe(status)});
}

FileDescriptor CudaMemory::exported() const {
  constexpr int dma_buf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  int descriptor = -1;
  static_cast<void>(api_.set_context(context_));
  const bool can = api_.export_range != nullptr && api_.export_range(&descriptor, address_, bytes_, dma_buf, 0) == 0;
  return FileDescriptor(can ? descriptor : -1);
}

}  // namespace amldist::fabric
