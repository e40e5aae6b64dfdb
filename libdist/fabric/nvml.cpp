#include "fabric/nvml.hpp"

#include <dlfcn.h>
#include <sys/prctl.h>

#include <array>
#include <csignal>
#include <cstring>

#include "core/hex.hpp"
#include "core/text.hpp"
#include "os/child_process.hpp"
#include "os/clock.hpp"
#include "os/whole_file.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

// From NVIDIA's nvml.h, whose ABI is stable: what is used here, with its numbers.
using NvmlDevice = struct NvmlDeviceHandle*;
using NvmlReturn = int;
constexpr NvmlReturn nvml_success = 0;
constexpr int uncorrected_errors = 1;
constexpr int volatile_counter = 0;
constexpr int aggregate_counter = 1;
constexpr unsigned most_links = 18;
constexpr unsigned most_gpus = 64;

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

/// The functions that this node's library has. Only those of the first group must be there.
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
};

template <typename Function>
void find(void* library, Function*& target, const char* name) {
  target = reinterpret_cast<Function*>(::dlsym(library, name));
}

std::optional<Nvml> load(void* library) {
  Nvml nvml;
  find(library, nvml.init, "nvmlInit_v2");
  find(library, nvml.count, "nvmlDeviceGetCount_v2");
  find(library, nvml.handle, "nvmlDeviceGetHandleByIndex_v2");
  find(library, nvml.error_string, "nvmlErrorString");
  find(library, nvml.driver_version, "nvmlSystemGetDriverVersion");
  find(library, nvml.pci_info, "nvmlDeviceGetPciInfo_v3");
  find(library, nvml.ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(library, nvml.remapped_rows, "nvmlDeviceGetRemappedRows");
  find(library, nvml.link_state, "nvmlDeviceGetNvLinkState");
  find(library, nvml.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  find(library, nvml.most_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  find(library, nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(library, nvml.persistence, "nvmlDeviceGetPersistenceMode");
  find(library, nvml.fabric_info, "nvmlDeviceGetGpuFabricInfo");
  const bool whole =
      nvml.init != nullptr && nvml.count != nullptr && nvml.handle != nullptr && nvml.error_string != nullptr;
  return whole ? std::optional(nvml) : std::nullopt;
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
  gpu.pcie_width = value_of<unsigned>(nvml.pcie_width, device);
  gpu.most_pcie_width = value_of<unsigned>(nvml.most_pcie_width, device);
  if (const auto reasons = value_of<unsigned long long>(nvml.throttle_reasons, device)) gpu.throttle = *reasons;
  if (const auto mode = value_of<unsigned>(nvml.persistence, device)) gpu.persistence = *mode != 0;
  gpu.fabric = membership_of(nvml, device);
  return gpu;
}

GpuStates read_here(const std::string& named) {
  GpuStates states;
  const char* const name = named.empty() ? "libnvidia-ml.so.1" : named.c_str();
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    states.problem = concat({name, " is not installed"});
    return states;
  }
  const auto nvml = load(library);
  if (!nvml) {
    states.problem = concat({name, " is too old"});
    return states;
  }
  states.asked = true;
  unsigned count = 0;
  NvmlReturn got = nvml->init();
  if (got == nvml_success) got = nvml->count(&count);
  if (got != nvml_success) {
    states.problem = nvml->error_string(got);
    return states;
  }
  std::array<char, 80> version{};
  if (nvml->driver_version != nullptr) static_cast<void>(nvml->driver_version(version.data(), version.size()));
  version.back() = 0;
  states.driver = version.data();
  for (unsigned index = 0; index < std::min(count, most_gpus); ++index) states.gpus.push_back(state_of(*nvml, index));
  return states;
}

template <typename Number>
std::string optional_text(const std::optional<Number>& number) {
  return number ? std::to_string(static_cast<std::uint64_t>(*number)) : "-";
}

std::optional<std::uint64_t> optional_number(std::string_view text) { return text::to_number(text, UINT64_MAX); }

std::optional<std::uint32_t> small_number(std::string_view text) {
  const auto number = text::to_number(text, UINT32_MAX);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

constexpr std::size_t field_count = 13;

}  // namespace

std::string to_text(const GpuStates& states) {
  std::string out = concat(
      {states.asked ? "1" : "0", "\t", printable(states.driver, 80), "\t", printable(states.problem, 200), "\n"});
  for (const GpuState& gpu : states.gpus) {
    std::string links;
    for (const bool active : gpu.links) links += active ? '1' : '0';
    const std::string rows =
        gpu.rows ? concat({std::to_string(gpu.rows->correctable), ",", std::to_string(gpu.rows->uncorrectable), ",",
                           gpu.rows->pending ? "1" : "0", ",", gpu.rows->failed ? "1" : "0"})
                 : "-";
    const std::string fabric = gpu.fabric
                                   ? concat({std::to_string(gpu.fabric->state), ",", std::to_string(gpu.fabric->status),
                                             ",", gpu.fabric->cluster, ",", std::to_string(gpu.fabric->clique)})
                                   : "-";
    out += concat({std::to_string(gpu.index),
                   "\t",
                   gpu.address,
                   "\t",
                   printable(gpu.problem, 120),
                   "\t",
                   optional_text(gpu.ecc_volatile),
                   "\t",
                   optional_text(gpu.ecc_aggregate),
                   "\t",
                   rows,
                   "\t",
                   links,
                   "\t",
                   optional_text(gpu.pcie_width),
                   "\t",
                   optional_text(gpu.most_pcie_width),
                   "\t",
                   optional_text(gpu.throttle),
                   "\t",
                   optional_text(gpu.persistence),
                   "\t",
                   fabric,
                   "\t.\n"});
  }
  return out;
}

Result<GpuStates> gpu_states_from_text(std::string_view text) {
  const Error malformed{Errc::invalid_argument, "what was read from the driver is malformed"};
  GpuStates states;
  const auto lines = text::split(text, '\n');
  const auto head = text::split(lines.front(), '\t');
  if (head.size() != 3 || lines.size() < 2 || !lines.back().empty()) return malformed;
  states.asked = head[0] == "1";
  states.driver = head[1];
  states.problem = head[2];
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const auto fields = text::split(lines[i], '\t');
    if (fields.size() != field_count || fields.back() != ".") return malformed;
    GpuState gpu;
    gpu.index = small_number(fields[0]).value_or(0);
    gpu.address = fields[1];
    gpu.problem = fields[2];
    gpu.ecc_volatile = optional_number(fields[3]);
    gpu.ecc_aggregate = optional_number(fields[4]);
    if (const auto rows = text::split(fields[5], ','); rows.size() == 4) {
      gpu.rows = RemappedRows{small_number(rows[0]).value_or(0), small_number(rows[1]).value_or(0), rows[2] == "1",
                              rows[3] == "1"};
    }
    for (const char link : fields[6]) gpu.links.push_back(link == '1');
    gpu.pcie_width = small_number(fields[7]);
    gpu.most_pcie_width = small_number(fields[8]);
    gpu.throttle = optional_number(fields[9]);
    if (const auto mode = small_number(fields[10])) gpu.persistence = *mode != 0;
    if (const auto fabric = text::split(fields[11], ','); fabric.size() == 4) {
      gpu.fabric = FabricMembership{small_number(fabric[0]).value_or(0), small_number(fabric[1]).value_or(0),
                                    std::string(fabric[2]), small_number(fabric[3]).value_or(0)};
    }
    states.gpus.push_back(std::move(gpu));
  }
  return states;
}

GpuStates read_gpu_states(const std::string& library, std::chrono::milliseconds timeout) {
  constexpr std::size_t longest_answer = 64 * 1024;
  GpuStates failed;
  const auto deadline = Clock::now() + timeout;
  auto pipe = Pipe::make();
  if (!pipe) {
    failed.problem = pipe.error().message;
    return failed;
  }
  auto child = ChildProcess::fork([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the parent is killed, this must end too
    amldist::write_all(pipe->writing.get(), to_text(read_here(library)));
  });
  if (!child) {
    failed.problem = child.error().message;
    return failed;
  }
  pipe->writing = FileDescriptor();
  const auto text = read_until_end(pipe->reading.get(), deadline, longest_answer);
  const bool ended = text && child->wait_until(deadline).has_value();
  if (!ended) child->kill(SIGKILL);
  auto states = text ? gpu_states_from_text(*text) : Result<GpuStates>(text.error());
  if (states) return std::move(*states);
  failed.asked = true;
  failed.timed_out = true;
  failed.problem = ended ? "the process that asked it died"
                         : concat({"no answer in ", std::to_string(timeout.count() / 1000), " s"});
  return failed;
}

}  // namespace amldist::fabric
