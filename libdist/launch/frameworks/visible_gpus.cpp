#include "launch/frameworks/visible_gpus.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/text/text.hpp"

// Lists as torch's tests of _parse_visible_devices have them (test/test_cuda.py, TestVisibleDeviceParses). MIG and ROCm
// follow the vendors' documents and were not tried on such GPUs.
namespace amldist::launch {
namespace {

using text::concat;

constexpr std::uint32_t no_limit = std::numeric_limits<std::uint32_t>::max();

/// A variable's list; `limit` is the number of devices that it chooses from.
struct DeviceList {
  std::string_view name = {};
  std::string value = {};
  std::uint32_t limit = no_limit;
};

std::size_t listed(const DeviceList& list) { return text::split(list.value, ',').size(); }

bool is_device(std::string_view entry, std::uint32_t limit) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  if (entry.empty() || entry.front() < '0' || entry.front() > '9') return false;
  const auto number = text::to_number(entry, no_limit);
  return !number || *number < limit;  // "0.1" is a part of a device
}

std::uint32_t count(const DeviceList& list) {
  std::vector<std::string_view> devices;
  for (const std::string_view piece : text::split(list.value, ',')) {
    const std::string_view entry = text::trim(piece);
    if (!is_device(entry, list.limit)) break;
    if (std::ranges::find(devices, entry) != devices.end()) return 0;
    devices.push_back(entry);
    if (entry.starts_with("MIG-")) break;
  }
  return static_cast<std::uint32_t>(devices.size());
}

/// The list that decides.
std::optional<DeviceList> deciding_list(const EnvironmentReader& environment) {
  const auto rocr = environment("ROCR_VISIBLE_DEVICES");
  const std::uint32_t outer = rocr ? count({"ROCR_VISIBLE_DEVICES", *rocr}) : no_limit;
  const auto inner = rocr ? std::array{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}
                          : std::array{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
  for (const char* const name : inner) {
    // Slurm sets its list in both variables where gres.conf does not tell it the vendor.
    const bool is_slurms = name == inner.back() && environment(name) == rocr;
    if (auto value = environment(name); value && !is_slurms) return DeviceList{name, std::move(*value), outer};
  }
  for (const char* const name : {"ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_STEP_GPUS"}) {
    if (auto value = environment(name)) return DeviceList{name, std::move(*value)};
  }
  return std::nullopt;
}

/// How many Slurm has bound to the step on this node; no_limit: it does not say.
std::uint32_t bound_by_slurm(const EnvironmentReader& environment) {
  const auto list = environment("SLURM_STEP_GPUS");
  return list && !list->empty() ? count({"SLURM_STEP_GPUS", *list}) : no_limit;
}

}  // namespace

std::optional<std::uint32_t> visible_gpus(const EnvironmentReader& environment) {
  const auto list = deciding_list(environment);
  if (!list) return std::nullopt;
  return std::min(count(*list), bound_by_slurm(environment));
}

std::optional<std::string> unseen_gpus(const EnvironmentReader& environment) {
  const auto list = deciding_list(environment);
  if (!list || listed(*list) < 2) return std::nullopt;
  const std::string what = concat({list->name, " lists ", std::to_string(listed(*list)), " devices, "});
  const std::uint32_t bound = bound_by_slurm(environment);
  const std::uint32_t seen = count(*list);
  if (list->value.find("MIG-") != std::string::npos && seen == 1) {
    return concat(
        {what, "but a process sees one MIG instance only: use --gpus-per-task=1, one task for each instance"});
  }
  if (bound < seen) {
    return concat(
        {what, "but Slurm has bound ", std::to_string(bound), " (SLURM_STEP_GPUS): leave the variable to Slurm"});
  }
  if (list->limit < no_limit && seen < listed(*list)) {
    return concat({what, "of which ", std::to_string(seen), " exist within the ", std::to_string(list->limit),
                   " of ROCR_VISIBLE_DEVICES: number them from 0"});
  }
  return std::nullopt;
}

}  // namespace amldist::launch
