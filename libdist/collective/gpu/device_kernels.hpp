// The device part at run time: libamldist_device.so beside this library, opened when it is first needed.
#pragma once

#include <string>

#include "collective/gpu/device/kernels.h"
#include "core/result.hpp"

namespace amldist::collective {

/// The functions of kernels.h.
struct DeviceKernels {
  decltype(&amldist_device_pack) pack = nullptr;
  decltype(&amldist_device_unpack) unpack = nullptr;
  decltype(&amldist_device_scale) scale = nullptr;
  decltype(&amldist_device_cast) cast = nullptr;
  decltype(&amldist_device_error) error = nullptr;
  int cuda_version = 0;  ///< of the toolkit it was built with: 13000
};

/// Opens `named`, or libamldist_device.so in the folder of this library, or where the dynamic linker finds it. Errors:
/// it is not there (built without the CUDA toolkit), or it is of another release.
[[nodiscard]] Result<DeviceKernels> load_device_kernels(const std::string& named = {});

}  // namespace amldist::collective
