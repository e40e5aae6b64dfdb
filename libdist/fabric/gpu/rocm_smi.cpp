#include "fabric/gpu/rocm_smi.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/vendor_library.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

// The types and numbers used here, from AMD's rocm_smi.h. Only functions whose types never changed are used.
using RsmiStatus = int;
constexpr RsmiStatus rsmi_success = 0;
constexpr int driver_component = 0;   // RSMI_SW_COMP_DRIVER
constexpr int xgmi_link = 2;          // RSMI_IOLINK_TYPE_XGMI
constexpr int page_pending = 1;       // RSMI_MEM_PAGE_STATUS_PENDING
constexpr int page_unreservable = 2;  // RSMI_MEM_PAGE_STATUS_UNRESERVABLE
constexpr std::uint32_t most_amd_gpus = 64;
constexpr std::uint32_t most_pages = 4096;
/// rsmi_gpu_block_t: memory (UMC), SDMA, GFX, MMHUB, ... are bits; those of memory and of the links' fabric count.
constexpr std::array<std::uint64_t, 5> ecc_blocks = {0x1, 0x2, 0x4, 0x8, 0x80};

/// rsmi_error_count_t
struct ErrorCount {
  std::uint64_t correctable;
  std::uint64_t uncorrectable;
};

/// rsmi_retired_page_record_t
struct PageRecord {
  std::uint64_t address;
  std::uint64_t size;
  int status;
};

/// The functions that this node's library has. Only the first group is required.
struct Rsmi {
  RsmiStatus (*init)(std::uint64_t) = nullptr;
  RsmiStatus (*count)(std::uint32_t*) = nullptr;
  RsmiStatus (*pci_id)(std::uint32_t, std::uint64_t*) = nullptr;
  RsmiStatus (*status_string)(RsmiStatus, const char**) = nullptr;

  RsmiStatus (*version)(int, char*, std::uint32_t) = nullptr;
  RsmiStatus (*ecc_count)(std::uint32_t, std::uint64_t, ErrorCount*) = nullptr;
  RsmiStatus (*pages)(std::uint32_t, std::uint32_t*, PageRecord*) = nullptr;
  RsmiStatus (*link_type)(std::uint32_t, std::uint32_t, std::uint64_t*, int*) = nullptr;
  RsmiStatus (*link_errors)(std::uint32_t, int*) = nullptr;
};

Rsmi load_rsmi(VendorLibrary& library) {
  Rsmi rsmi;
  library.find(rsmi.init, "rsmi_init");
  library.find(rsmi.count, "rsmi_num_monitor_devices");
  library.find(rsmi.pci_id, "rsmi_dev_pci_id_get");
  library.find(rsmi.status_string, "rsmi_status_string");
  library.find_optional(rsmi.version, "rsmi_version_str_get");
  library.find_optional(rsmi.ecc_count, "rsmi_dev_ecc_count_get");
  library.find_optional(rsmi.pages, "rsmi_dev_memory_reserved_pages_get");
  library.find_optional(rsmi.link_type, "rsmi_topo_get_link_type");
  library.find_optional(rsmi.link_errors, "rsmi_dev_xgmi_error_status");
  return rsmi;
}

std::string message_of(const Rsmi& rsmi, RsmiStatus status) {
  const char* text = nullptr;
  const bool known = rsmi.status_string(status, &text) == rsmi_success && text != nullptr;
  return known ? printable(text, 120) : concat({"rocm_smi status ", std::to_string(status)});
}

/// "0000:1b:00.0" of domain << 32 | bus << 8 | device << 3 | function.
std::string pci_address(std::uint64_t id) {
  return concat({to_hex(id >> 32 & 0xffff, 2), ":", to_hex(id >> 8 & 0xff, 1), ":", to_hex(id >> 3 & 0x1f, 1), ".",
                 std::to_string(id & 7)});
}

/// Pages of memory that were taken out of use. A page that could not be reserved stays in use.
std::optional<RemappedRows> retired_pages(const Rsmi& rsmi, std::uint32_t index) {
  std::uint32_t count = 0;
  if (rsmi.pages == nullptr || rsmi.pages(index, &count, nullptr) != rsmi_success) return std::nullopt;
  count = std::min(count, most_pages);
  std::vector<PageRecord> records(count);
  if (count > 0 && rsmi.pages(index, &count, records.data()) != rsmi_success) return std::nullopt;
  records.resize(std::min<std::size_t>(count, records.size()));
  RemappedRows out;
  out.uncorrectable = static_cast<std::uint32_t>(records.size());
  out.pending = std::ranges::any_of(records, [](const PageRecord& each) { return each.status == page_pending; });
  out.failed = std::ranges::any_of(records, [](const PageRecord& each) { return each.status == page_unreservable; });
  return out;
}

GpuState amd_state(const Rsmi& rsmi, std::uint32_t index, std::uint32_t count) {
  GpuState gpu;
  gpu.index = index;
  std::uint64_t id = 0;
  if (const RsmiStatus got = rsmi.pci_id(index, &id); got != rsmi_success) {
    gpu.problem = message_of(rsmi, got);
    return gpu;
  }
  gpu.address = pci_address(id);
  for (const std::uint64_t block : ecc_blocks) {
    ErrorCount errors = {};
    if (rsmi.ecc_count == nullptr || rsmi.ecc_count(index, block, &errors) != rsmi_success) continue;
    gpu.ecc_volatile = gpu.ecc_volatile.value_or(0) + errors.uncorrectable;
  }
  gpu.rows = retired_pages(rsmi, index);
  for (std::uint32_t other = 0; rsmi.link_type != nullptr && other < count; ++other) {
    std::uint64_t hops = 0;
    int type = 0;
    if (other == index || rsmi.link_type(index, other, &hops, &type) != rsmi_success) continue;
    gpu.links.push_back(type == xgmi_link);
  }
  int errors = 0;
  if (rsmi.link_errors != nullptr && rsmi.link_errors(index, &errors) == rsmi_success) gpu.link_errors = errors != 0;
  return gpu;
}

// Debian's and ROCm's before 5, 5 and 6, and 7.
constexpr std::array rsmi_names = {"librocm_smi64.so",   "librocm_smi64.so.7", "librocm_smi64.so.6",
                                   "librocm_smi64.so.5", "librocm_smi64.so.1", "/opt/rocm/lib/librocm_smi64.so"};

}  // namespace

GpuStates ask_rocm_smi(const std::string& library) {
  GpuStates states;
  states.links_are = "XGMI link";
  VendorLibrary opened(library, rsmi_names);
  const Rsmi rsmi = load_rsmi(opened);
  if (const auto status = opened.is_whole(); !status) {
    states.problem = status.error().message;
    return states;
  }
  states.asked = true;
  std::uint32_t count = 0;
  RsmiStatus got = rsmi.init(0);
  if (got == rsmi_success) got = rsmi.count(&count);
  if (got != rsmi_success) {
    states.problem = message_of(rsmi, got);
    return states;
  }
  std::array<char, 128> version{};
  if (rsmi.version != nullptr) static_cast<void>(rsmi.version(driver_component, version.data(), version.size()));
  version.back() = 0;
  states.driver = version.data();
  count = std::min(count, most_amd_gpus);
  for (std::uint32_t index = 0; index < count; ++index) states.gpus.push_back(amd_state(rsmi, index, count));
  return states;
}

}  // namespace amldist::fabric
