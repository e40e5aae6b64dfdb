// Loads libamldist_device.so, the device part, from beside this library on first use.
#pragma once

#include <string>

#include "base/text/result.hpp"
#include "collective/gpu/device/kernels.h"

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

/// Opens `named`, or libamldist_device.so in this library's folder, or as the dynamic linker finds it. Errors: it does
/// not exist (built without the CUDA toolkit), or it belongs to another release.
[[nodiscard]] Result<DeviceKernels> load_device_kernels(const std::string& named = {});

}  // namespace amldist::collective
