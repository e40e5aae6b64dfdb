#include "fabric/gpu/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/vendor_library.hpp"

namespace amldist::fabric {
namespace {

// The types and numbers used here, from NVIDIA's nvml.h, whose ABI is stable.
using NvmlDevice = struct NvmlDeviceHandle*;
using NvmlReturn = int;
constexpr NvmlReturn nvml_success = 0;
constexpr int uncorrected_errors = 1;
constexpr int volatile_counter = 0;
constexpr int aggregate_counter = 1;
constexpr unsigned most_links = 18;
constexpr unsigned most_gpus_asked = 64;

/// nvmlPciInfo_t
struct PciInfo {
  std::array<char, 16> legacy_address;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> address;
};

/// nvmlGpuFabricInfo_t
struct FabricInfo {
  std::array<unsigned char, 16> cluster;
  NvmlReturn status;
  unsigned clique;
  unsigned char state;
};

/// nvmlFieldValue_t
struct FieldValue {
  unsigned field;
  unsigned scope;  ///< of NVLink's fields: the link
  long long timestamp;
  long long latency;
  int type;
  NvmlReturn status;
  alignas(8) std::array<unsigned, 2> value;  ///< a union of 8 bytes; an unsigned is its first half
};
constexpr unsigned link_speed_field = 164;  // NVML_FI_DEV_NVLINK_GET_SPEED, in MB/s

/// The functions that this node's library has. Only the first group is required.
struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*handle)(unsigned, NvmlDevice*) = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;

  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
  NvmlReturn (*pci_info)(NvmlDevice, PciInfo*) = nullptr;
  NvmlReturn (*ecc_errors)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  NvmlReturn (*remapped_rows)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*link_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*pcie_width)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*most_pcie_width)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;
  NvmlReturn (*persistence)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*fabric_info)(NvmlDevice, FabricInfo*) = nullptr;
  NvmlReturn (*field_values)(NvmlDevice, int, FieldValue*) = nullptr;
};

Nvml load(VendorLibrary& library) {
  Nvml nvml;
  library.find(nvml.init, "nvmlInit_v2");
  library.find(nvml.count, "nvmlDeviceGetCount_v2");
  library.find(nvml.handle, "nvmlDeviceGetHandleByIndex_v2");
  library.find(nvml.error_string, "nvmlErrorString");
  library.find_optional(nvml.driver_version, "nvmlSystemGetDriverVersion");
  library.find_optional(nvml.pci_info, "nvmlDeviceGetPciInfo_v3");
  library.find_optional(nvml.ecc_errors, "nvmlDeviceGetTotalEccErrors");
  library.find_optional(nvml.remapped_rows, "nvmlDeviceGetRemappedRows");
  library.find_optional(nvml.link_state, "nvmlDeviceGetNvLinkState");
  library.find_optional(nvml.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  library.find_optional(nvml.most_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  library.find_optional(nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  library.find_optional(nvml.persistence, "nvmlDeviceGetPersistenceMode");
  library.find_optional(nvml.fabric_info, "nvmlDeviceGetGpuFabricInfo");
  library.find_optional(nvml.field_values, "nvmlDeviceGetFieldValues");
  return nvml;
}

/// One value of a GPU; nullopt if the library lacks the function or the GPU does not support it.
template <typename Value, typename Function>
std::optional<Value> value_of(Function* function, NvmlDevice device) {
  Value value = {};
  if (function == nullptr || function(device, &value) != nvml_success) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> errors_of(const Nvml& nvml, NvmlDevice device, int counter) {
  unsigned long long errors = 0;
  const bool known =
      nvml.ecc_errors != nullptr && nvml.ecc_errors(device, uncorrected_errors, counter, &errors) == nvml_success;
  return known ? std::optional<std::uint64_t>(errors) : std::nullopt;
}

std::optional<FabricMembership> membership_of(const Nvml& nvml, NvmlDevice device) {
  const auto info = value_of<FabricInfo>(nvml.fabric_info, device);
  if (!info) return std::nullopt;
  FabricMembership out{info->state, static_cast<std::uint32_t>(info->status), "", info->clique};
  for (const unsigned char byte : info->cluster) append_hex(out.cluster, byte);
  return out;
}

/// The lowest speed of the active links in MB/s; nullopt if not reported.
std::optional<std::uint32_t> slowest_link(const Nvml& nvml, NvmlDevice device, const std::vector<bool>& links) {
  std::optional<std::uint32_t> slowest;
  for (unsigned link = 0; nvml.field_values != nullptr && link < links.size(); ++link) {
    FieldValue speed = {};
    speed.field = link_speed_field;
    speed.scope = link;
    if (!links[link] || nvml.field_values(device, 1, &speed) != nvml_success || speed.status != nvml_success) continue;
    if (speed.value.front() > 0) slowest = std::min(slowest.value_or(speed.value.front()), speed.value.front());
  }
  return slowest;
}

GpuState state_of(const Nvml& nvml, unsigned index) {
  GpuState gpu;
  gpu.index = index;
  NvmlDevice device = nullptr;
  if (const NvmlReturn got = nvml.handle(index, &device); got != nvml_success) {
    gpu.problem = nvml.error_string(got);
    return gpu;
  }
  if (const auto pci = value_of<PciInfo>(nvml.pci_info, device)) {
    gpu.address =
        printable(std::string_view(pci->address.data(), ::strnlen(pci->address.data(), pci->address.size())), 32);
  }
  gpu.ecc_volatile = errors_of(nvml, device, volatile_counter);
  gpu.ecc_aggregate = errors_of(nvml, device, aggregate_counter);
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (nvml.remapped_rows != nullptr &&
      nvml.remapped_rows(device, &correctable, &uncorrectable, &pending, &failed) == nvml_success) {
    gpu.rows = RemappedRows{correctable, uncorrectable, pending != 0, failed != 0};
  }
  for (unsigned link = 0; nvml.link_state != nullptr && link < most_links; ++link) {
    unsigned active = 0;
    if (nvml.link_state(device, link, &active) != nvml_success) break;
    gpu.links.push_back(active != 0);
  }
  gpu.link_speed = slowest_link(nvml, device, gpu.links);
  gpu.pcie_width = value_of<unsigned>(nvml.pcie_width, device);
  gpu.most_pcie_width = value_of<unsigned>(nvml.most_pcie_width, device);
  if (const auto reasons = value_of<unsigned long long>(nvml.throttle_reasons, device)) gpu.throttle = *reasons;
  if (const auto mode = value_of<unsigned>(nvml.persistence, device)) gpu.persistence = *mode != 0;
  gpu.fabric = membership_of(nvml, device);
  return gpu;
}

}  // namespace

GpuStates ask_nvml(const std::string& library) {
  GpuStates states;
  static constexpr std::array names = {"libnvidia-ml.so.1"};
  VendorLibrary opened(library, names);
  const Nvml nvml = load(opened);
  if (const auto status = opened.is_whole(); !status) {
    states.problem = status.error().message;
    return states;
  }
  states.asked = true;
  unsigned count = 0;
  NvmlReturn got = nvml.init();
  if (got == nvml_success) got = nvml.count(&count);
  if (got != nvml_success) {
    states.problem = nvml.error_string(got);
    return states;
  }
  std::array<char, 80> version{};
  if (nvml.driver_version != nullptr) static_cast<void>(nvml.driver_version(version.data(), version.size()));
  version.back() = 0;
  states.driver = version.data();
  for (unsigned index = 0; index < std::min(count, most_gpus_asked); ++index)
    states.gpus.push_back(state_of(nvml, index));
  return states;
}

}  // namespace amldist::fabric
