#include "fabric/facts/rank_place.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/os/processor_place.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "fabric/facts/attribute.hpp"

namespace amldist::fabric {
namespace {

constexpr std::size_t most_processors = 8192;
constexpr std::uint32_t most_numa_nodes = 64;

/// Calls `take` for each number of "0-3,8"; stops at what is not such a list.
template <typename Take>
void for_each_number(std::string_view list, std::uint64_t most, Take take) {
  for (const std::string_view piece : text::split(list, ',')) {
    const auto dash = piece.find('-');
    const auto first = text::to_number(piece.substr(0, dash), most);
    const auto last = dash == std::string_view::npos ? first : text::to_number(piece.substr(dash + 1), most);
    if (!first || !last) return;
    for (auto each = *first; each <= *last; ++each) take(each);
  }
}

int numa_node_in(const std::string& folder) {
  const auto node = text::to_number(text::trim(first_line_of(folder + "/numa_node")), most_numa_nodes - 1);
  return node ? static_cast<int>(*node) : -1;
}

/// The one port that the user has named for this rank, without NCCL's "=" and a port's number: "=mlx5_1:1".
std::string own_port(const EnvironmentReader& environment) {
  const std::string list = environment("NCCL_IB_HCA").value_or("");
  if (!list.starts_with('=') || list.find(',') != std::string::npos) return {};
  return list.substr(1, list.find(':') == std::string::npos ? std::string::npos : list.find(':') - 1);
}

}  // namespace

std::vector<NumaProcessors> read_numa(const std::string& sys) {
  std::vector<NumaProcessors> out;
  std::string problem;
  const std::string folder = sys + "/devices/system/node";
  for (const std::string& name : list_folder(folder, 2 * std::size_t{most_numa_nodes}, &problem)) {
    const auto number =
        text::to_number(name.starts_with("node") ? std::string_view(name).substr(4) : "", most_numa_nodes - 1);
    if (!number) continue;
    NumaProcessors node{static_cast<std::uint32_t>(*number), std::vector<bool>(most_processors)};
    for_each_number(first_line_of(text::concat({folder, "/", name, "/cpulist"})), most_processors - 1,
                    [&](std::uint64_t processor) { node.processors[processor] = true; });
    out.push_back(std::move(node));
  }
  return out;
}

DevicePlaces read_device_places(std::span<const NumberedGpu> gpus, const std::string& sys) {
  constexpr std::size_t most_ports = 64;
  DevicePlaces out;
  for (const NumberedGpu& gpu : gpus)
    out.gpus.emplace_back(gpu.number, numa_node_in(text::concat({sys, "/bus/pci/devices/", gpu.address})));
  std::string problem;
  const std::string ports = sys + "/class/infiniband";
  for (const std::string& name : list_folder(ports, most_ports, &problem))
    out.ports.emplace_back(name, numa_node_in(text::concat({ports, "/", name, "/device"})));
  return out;
}

NumaNodes own_numa_nodes(std::span<const NumaProcessors> numa) {
  NumaNodes nodes = 0;
  for (const int allowed : allowed_processors()) {
    const auto processor = static_cast<std::size_t>(allowed);
    for (const NumaProcessors& each : numa)
      if (processor < each.processors.size() && each.processors[processor]) nodes |= NumaNodes{1} << each.node;
  }
  return nodes;
}

NumaNodes memory_nodes(std::string_view status) {
  constexpr std::string_view name = "Mems_allowed_list:";
  NumaNodes nodes = 0;
  for (const std::string_view line : text::split(status, '\n')) {
    if (!line.starts_with(name)) continue;
    for_each_number(text::trim(line.substr(name.size())), most_numa_nodes - 1,
                    [&](std::uint64_t node) { nodes |= NumaNodes{1} << node; });
  }
  return nodes;
}

std::optional<std::uint32_t> gpu_of_rank(std::string_view visible, std::uint32_t local_rank,
                                         std::span<const std::uint32_t> accessible, std::span<const NumberedGpu> gpus) {
  const auto entries = text::split(visible, ',');
  const std::size_t place = entries.size() == 1 ? 0 : local_rank;
  if (place >= entries.size()) return std::nullopt;
  const std::string_view entry = text::trim(entries[place]);
  if (entry.starts_with("GPU-")) {
    const auto found = std::ranges::find_if(gpus, [&](const NumberedGpu& gpu) { return gpu.uuid.starts_with(entry); });
    return found != gpus.end() ? std::optional(found->number) : std::nullopt;
  }
  constexpr std::uint64_t largest = 1023;
  const auto number = text::to_number(entry, largest);
  if (!number) return std::nullopt;
  if (accessible.empty()) return gpus.empty() ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
  return *number < accessible.size() ? std::optional(accessible[*number]) : std::nullopt;
}

std::vector<std::uint32_t> accessible_gpus(std::span<const NumberedGpu> gpus, const std::string& dev) {
  std::vector<std::uint32_t> out;
  for (const NumberedGpu& gpu : gpus) {
    // The kernel asks the cgroup also here.
    if (::access(text::concat({dev, "/nvidia", std::to_string(gpu.number)}).c_str(), R_OK | W_OK) == 0)
      out.push_back(gpu.number);
  }
  return out;
}

RankPlace own_place(std::span<const NumaProcessors> numa, std::span<const NumberedGpu> gpus, std::uint32_t rank,
                    std::uint32_t local_rank, const EnvironmentReader& environment) {
  constexpr std::size_t enough = 8192;
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  const bool shares = environment("CUDA_MPS_PIPE_DIRECTORY") || environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  const auto gpu = visible && !shares ? gpu_of_rank(*visible, local_rank, accessible_gpus(gpus), gpus) : std::nullopt;
  RankPlace place{.rank = rank,
                  .processors = own_numa_nodes(numa),
                  .memory = memory_nodes(read_file_start("/proc/self/status", enough)),
                  .gpu = gpu ? static_cast<std::int32_t>(*gpu) : -1};
  const std::string port = own_port(environment);
  if (port.size() < place.port.size()) std::ranges::copy(port, place.port.begin());
  return place;
}

}  // namespace amldist::fabric
