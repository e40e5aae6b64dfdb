// What the driver says about a node's GPUs. Nothing here calls a driver; gpu/ does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/facts/node_facts.hpp"

namespace amldist::fabric {

/// Rows of memory that the GPU has replaced (A100 and later).
struct RemappedRows {
  std::uint32_t correctable = 0;
  std::uint32_t uncorrectable = 0;
  bool pending = false;  ///< a replacement waits for a reset
  bool failed = false;   ///< no spare row was left
};

/// The NVLink fabric that a GPU has joined (nvmlGpuFabricInfo_t).
struct FabricMembership {
  std::uint32_t state = 0;   ///< 0 not supported, 1 not started, 2 in progress, 3 completed
  std::uint32_t status = 0;  ///< an nvmlReturn_t, once completed
  std::string cluster;       ///< UUID of the NVLink domain; empty or zeros: within the node
  std::uint32_t clique = 0;
};

/// One GPU. Values that the driver does not support are nullopt.
struct GpuState {
  std::uint32_t index = 0;
  std::string address;  ///< "0000:01:00.0"
  std::string problem;  ///< why the driver gives no answer for this GPU ("GPU is lost"); empty if it does
  std::optional<std::uint64_t> ecc_volatile;   ///< uncorrectable errors since the driver was loaded
  std::optional<std::uint64_t> ecc_aggregate;  ///< in the GPU's life
  std::optional<RemappedRows> rows;
  std::vector<bool> links;                  ///< NVLinks, or XGMI to each other GPU: whether each is active
  std::optional<std::uint32_t> link_speed;  ///< of the slowest active link, MB/s
  std::optional<bool> link_errors;          ///< XGMI: errors since the driver was loaded
  std::optional<std::uint32_t> pcie_width, most_pcie_width;
  std::optional<std::uint64_t> throttle;  ///< nvmlClocksThrottleReasons
  std::optional<bool> persistence;
  std::optional<FabricMembership> fabric;
};

/// All GPUs of a node.
struct GpuStates {
  std::string links_are = "NVLink";  ///< what connects them
  bool asked = false;                ///< a driver was asked; without, all checks are skipped and `problem` says why
  bool timed_out = false;            ///< it did not answer
  std::string problem;               ///< why the driver as a whole gives no answer; empty if it does
  std::string driver;                ///< its version
  std::vector<GpuState> gpus;
};

/// Adds what the PCI bus reports and the driver's library does not: the lanes; and AMD's GPUs themselves if that
/// library is not installed.
void add_bus_facts(GpuStates& states, const NodeFacts& node);

/// "CLUSTER/CLIQUE" if all GPUs are in one NVLink domain beyond the node; else empty.
[[nodiscard]] std::string nvlink_domain(const GpuStates& states);

}  // namespace amldist::fabric
