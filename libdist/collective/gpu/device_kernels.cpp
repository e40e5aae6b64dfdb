#include "collective/gpu/device_kernels.hpp"

#include <dlfcn.h>

#include "base/os/shared_object.hpp"
#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr const char* file_name = "libamldist_device.so";

void* open_device_part(const std::string& named) {
  if (!named.empty()) return ::dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const beside = ::dlopen((own_folder() + file_name).c_str(), RTLD_NOW | RTLD_LOCAL);
  return beside != nullptr ? beside : ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
}

template <typename Function>
bool take(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<DeviceKernels> load_device_kernels(const std::string& named) {
  const std::string name = named.empty() ? file_name : named;
  void* const library = open_device_part(named);
  if (library == nullptr) {
    return Error{Errc::unavailable, concat({"the device part, ", text::quote(name),
                                            ", is not available: build aml-dist on a machine with the CUDA toolkit"})};
  }
  DeviceKernels kernels;
  decltype(&amldist_device_cuda_version) version = nullptr;
  const bool all =
      take(library, "amldist_device_pack", kernels.pack) && take(library, "amldist_device_unpack", kernels.unpack) &&
      take(library, "amldist_device_scale", kernels.scale) && take(library, "amldist_device_cast", kernels.cast) &&
      take(library, "amldist_device_error", kernels.error) && take(library, "amldist_device_cuda_version", version);
  if (!all)
    return Error{Errc::mismatch,
                 concat({"the device part, ", text::quote(name), ", belongs to another release of aml-dist"})};
  kernels.cuda_version = version();
  return kernels;
}

}  // namespace amldist::collective
