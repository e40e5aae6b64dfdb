// The checks of a node's GPUs: pure functions from the driver's answers to verdicts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/facts/gpu_state.hpp"
#include "fabric/facts/node_facts.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// What a node should have, and the source of that.
struct GpuExpectation {
  std::optional<std::uint32_t> count;
  std::string source;        ///< "the SKU", "Slurm", "the PCI bus"
  std::uint32_t on_bus = 0;  ///< GPUs of this vendor on the PCI bus that are not given away
  bool is_share = false;     ///< a job's share: the driver may show fewer than the bus
};

[[nodiscard]] Check check_gpu_count(const GpuStates& states, const GpuExpectation& expected);
[[nodiscard]] Check check_gpu_ecc(const GpuStates& states);
[[nodiscard]] Check check_gpu_rows(const GpuStates& states);
[[nodiscard]] Check check_gpu_links(const GpuStates& states);
[[nodiscard]] Check check_gpu_fabric(const GpuStates& states);
/// Whether a node of an NVLink domain beyond itself can share memory with the others.
[[nodiscard]] Check check_gpu_imex(const GpuStates& states, const NodeFacts& node);
[[nodiscard]] Check check_gpu_pcie(const GpuStates& states);
[[nodiscard]] Check check_gpu_throttle(const GpuStates& states);
[[nodiscard]] Check check_gpu_persistence(const GpuStates& states);
/// `lines`: of the kernel log; nullopt if it was not read.
[[nodiscard]] Check check_gpu_xid(const std::optional<std::vector<std::string>>& lines);

/// All of them, in this order. Under `prefer` a failure is a warning, under `off` nothing is checked. Under `require`
/// gpu.count is unknown where there are GPUs and nothing could be asked about them.
[[nodiscard]] std::vector<Check> verify_gpus(const GpuStates& states, const NodeFacts& node,
                                             const GpuExpectation& expected,
                                             const std::optional<std::vector<std::string>>& kernel_log,
                                             launch::RdmaPolicy health);

}  // namespace amldist::fabric
