#include "fabric/checks/bind.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr int unknown_node = -1;

bool has(NumaNodes nodes, int node) { return node >= 0 && (nodes >> static_cast<unsigned>(node) & 1U) != 0; }

/// "node 0", "nodes 0 and 1".
std::string name_of(NumaNodes nodes) {
  std::vector<std::string> numbers;
  for (int node = 0; node < 64; ++node)
    if (has(nodes, node)) numbers.push_back(std::to_string(node));
  const std::vector<std::string_view> words(numbers.begin(), numbers.end());
  return concat({numbers.size() == 1 ? "node " : "nodes ", text::join(words)});
}

int node_of_gpu(const RankPlace& rank, const DevicePlaces& devices) {
  const auto found = std::ranges::find_if(devices.gpus, [&](const auto& gpu) {
    return rank.gpu >= 0 && gpu.first == static_cast<std::uint32_t>(rank.gpu);
  });
  return found != devices.gpus.end() ? found->second : unknown_node;
}

int node_of_port(const RankPlace& rank, const DevicePlaces& devices) {
  const auto found =
      std::ranges::find(devices.ports, std::string_view(rank.port.data()), &std::pair<std::string, int>::first);
  return found != devices.ports.end() ? found->second : unknown_node;
}

/// The ranks of which something is wrong in the same way as of the first of them.
struct Misplaced {
  std::size_t count = 0;
  std::string first;
};

template <typename Describe>
Misplaced find(std::span<const RankPlace> ranks, Describe describe) {
  Misplaced out;
  for (const RankPlace& rank : ranks) {
    const std::string words = describe(rank);
    if (words.empty()) continue;
    if (out.count == 0) out.first = words;
    ++out.count;
  }
  return out;
}

std::string sentence(const Misplaced& misplaced, std::span<const RankPlace> ranks, const std::string& host,
                     std::string_view remedy) {
  return concat({std::to_string(misplaced.count), " of ", text::count(ranks.size(), "rank"), " on ", host, ": ",
                 misplaced.first, ": ", remedy});
}

/// The option that binds each rank to the processors beside its GPU.
std::string binding(std::span<const RankPlace> ranks, const DevicePlaces& devices) {
  std::string list;
  for (const RankPlace& rank : ranks) {
    const int node = node_of_gpu(rank, devices);
    if (node == unknown_node) return "add --gpu-bind=closest to srun";
    list += concat({list.empty() ? "" : ",", std::to_string(node)});
  }
  return concat({"add --cpu-bind=map_ldom:", list, " to srun"});
}

std::optional<std::string> shared_gpu(std::span<const RankPlace> ranks, const std::string& host) {
  for (const RankPlace& rank : ranks) {
    const auto same = [&](const RankPlace& other) { return rank.gpu >= 0 && other.gpu == rank.gpu; };
    const auto tasks = std::ranges::count_if(ranks, same);
    if (tasks < 2) continue;
    std::vector<std::string> numbers;
    for (const RankPlace& other : ranks)
      if (same(other)) numbers.push_back(std::to_string(other.rank));
    const std::vector<std::string_view> words(numbers.begin(), numbers.end());
    return concat({std::to_string(tasks), " tasks on ", host, " use the same GPU, number ", std::to_string(rank.gpu),
                   " (ranks ", text::join(words),
                   "): give each its own, with --gpus-per-task=1 or another --gpu-bind"});
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> judge_places(std::span<const RankPlace> ranks, const DevicePlaces& devices,
                                        const std::string& host) {
  if (auto shared = shared_gpu(ranks, host)) return shared;
  const Misplaced gpus = find(ranks, [&](const RankPlace& rank) {
    const int node = node_of_gpu(rank, devices);
    if (node == unknown_node || rank.processors == 0 || has(rank.processors, node)) return std::string();
    return concat({"GPU on NUMA node ", std::to_string(node), ", processors on ", name_of(rank.processors)});
  });
  if (gpus.count != 0) return sentence(gpus, ranks, host, binding(ranks, devices));
  const Misplaced memory = find(ranks, [](const RankPlace& rank) {
    if (rank.memory == 0 || rank.processors == 0 || (rank.memory & rank.processors) != 0) return std::string();
    return concat({"memory on NUMA ", name_of(rank.memory), ", processors on ", name_of(rank.processors)});
  });
  if (memory.count != 0) return sentence(memory, ranks, host, "add --mem-bind=local to srun");
  const Misplaced ports = find(ranks, [&](const RankPlace& rank) {
    const int node = node_of_port(rank, devices);
    const int gpu = node_of_gpu(rank, devices);
    const auto is_beside = [&](const auto& port) { return port.second == gpu; };
    if (node == unknown_node || gpu == unknown_node || node == gpu || std::ranges::none_of(devices.ports, is_beside))
      return std::string();
    return concat(
        {"port ", rank.port.data(), " on NUMA node ", std::to_string(node), ", GPU on node ", std::to_string(gpu)});
  });
  if (ports.count != 0) return sentence(ports, ranks, host, "leave the choice to NCCL (NCCL_IB_HCA)");
  return std::nullopt;
}

std::string describe_place(const RankPlace& place, const DevicePlaces& devices) {
  const int node = node_of_gpu(place, devices);
  return concat({"rank ", std::to_string(place.rank), ": processors on ",
                 place.processors == 0 ? "NUMA nodes that are not known" : concat({"NUMA ", name_of(place.processors)}),
                 place.memory == 0 ? "" : concat({", memory on ", name_of(place.memory)}),
                 place.gpu < 0 ? "" : concat({", GPU ", std::to_string(place.gpu)}),
                 node == unknown_node ? "" : concat({" on node ", std::to_string(node)}),
                 place.port.front() == '\0' ? "" : concat({", port ", place.port.data()})});
}

}  // namespace amldist::fabric
