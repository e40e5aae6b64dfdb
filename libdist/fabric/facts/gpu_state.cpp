#include "fabric/facts/gpu_state.hpp"

#include <algorithm>
#include <set>

#include "base/text/text.hpp"

namespace amldist::fabric {

void add_bus_facts(GpuStates& states, const NodeFacts& node) {
  const bool amd = std::ranges::any_of(node.gpus, [](const GpuFacts& gpu) { return !gpu.nvidia; });
  if (!states.asked && amd && node.amd_driver) {
    states.asked = true;
    states.problem.clear();
    states.driver = "amdgpu";
    for (const GpuFacts& each : node.gpus) {
      if (each.nvidia) continue;
      GpuState gpu;
      gpu.index = static_cast<std::uint32_t>(states.gpus.size());
      gpu.address = each.address;
      states.gpus.push_back(std::move(gpu));
    }
  }
  for (GpuState& gpu : states.gpus) {
    const auto found = std::ranges::find_if(node.gpus, [&gpu](const GpuFacts& each) {
      return !gpu.address.empty() && text::to_lower(gpu.address).ends_with(each.address);
    });
    if (found == node.gpus.end() || gpu.pcie_width || !found->current_width.present()) continue;
    const auto now = text::to_number(found->current_width.text, 64);
    const auto most = found->max_width.present() ? text::to_number(found->max_width.text, 64) : std::nullopt;
    if (!now || !most || *now == 0) continue;  // a virtual machine's bus does not report it
    gpu.pcie_width = static_cast<std::uint32_t>(*now);
    gpu.most_pcie_width = static_cast<std::uint32_t>(*most);
  }
}

std::string nvlink_domain(const GpuStates& states) {
  std::set<std::string> domains;
  for (const GpuState& gpu : states.gpus) {
    const bool beyond =
        gpu.fabric && gpu.fabric->state != 0 && gpu.fabric->cluster.find_first_not_of("0-") != std::string::npos;
    if (beyond) domains.insert(text::concat({gpu.fabric->cluster, "/", std::to_string(gpu.fabric->clique)}));
  }
  return domains.size() == 1 ? *domains.begin() : "";
}

}  // namespace amldist::fabric
