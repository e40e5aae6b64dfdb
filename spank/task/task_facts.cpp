#include "spank/task/task_facts.hpp"

#include <algorithm>
#include <utility>

#include "base/os/whole_file.hpp"
#include "fabric/checks/bind.hpp"

namespace amldist::spank {

namespace {

constexpr std::size_t longest_proc_file = 8192;

void note_group(TaskFacts& facts) {
  const auto group = step::MemoryGroup::parse(read_file_start("/proc/self/cgroup", longest_proc_file));
  if (!group) return;
  facts.is_version_1 = group->is_version_1;
  std::ranges::copy(group->path, facts.group.begin());
}

/// The one port that the user has named for this rank, without NCCL's "=" and a port's number: "=mlx5_1:1".
std::string own_port(const EnvironmentReader& environment) {
  const std::string list = environment("NCCL_IB_HCA").value_or("");
  if (!list.starts_with('=') || list.find(',') != std::string::npos) return {};
  return list.substr(1, list.find(':') == std::string::npos ? std::string::npos : list.find(':') - 1);
}

fabric::RankPlace own_place(const NodeDevices& devices, std::uint32_t rank, std::uint32_t local_rank,
                            const EnvironmentReader& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  const bool shares_on_purpose =
      environment("CUDA_MPS_PIPE_DIRECTORY") || environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  const auto gpu = visible && !shares_on_purpose
                       ? fabric::gpu_of_rank(*visible, local_rank, fabric::accessible_gpus(devices.gpus), devices.gpus)
                       : std::nullopt;
  fabric::RankPlace place{.rank = rank,
                          .processors = fabric::own_numa_nodes(devices.numa),
                          .memory = fabric::memory_nodes(read_file_start("/proc/self/status", longest_proc_file)),
                          .gpu = gpu ? static_cast<std::int32_t>(*gpu) : -1};
  const std::string port = own_port(environment);
  if (port.size() < place.port.size()) std::ranges::copy(port, place.port.begin());
  return place;
}

}  // namespace

NodeDevices read_devices() {
  NodeDevices out{.numa = fabric::read_numa(), .gpus = fabric::read_numbered_gpus()};
  out.places = fabric::read_device_places(out.gpus);
  return out;
}

AllTaskFacts AllTaskFacts::make(std::uint32_t tasks) {
  return {.tasks = SharedArray<TaskFacts>::make(tasks), .complete = SharedAtomic<std::uint32_t>::make()};
}

bool note_task(const AllTaskFacts& all, std::uint32_t local, std::uint32_t rank, std::uint32_t local_rank,
               const EnvironmentReader& environment) {
  TaskFacts* const facts = all.tasks.at(local);
  if (facts == nullptr) return false;
  note_group(*facts);
  if (!all.devices.numa.empty()) facts->place = own_place(all.devices, rank, local_rank, environment);
  if (facts->is_complete.exchange(true)) return false;
  return all.complete.add(1) + 1 == all.tasks.size();
}

std::vector<std::string> lines_about_places(const AllTaskFacts& all, const std::string& host, bool verbose) {
  std::vector<std::string> lines;
  if (all.devices.numa.empty()) return lines;
  std::vector<fabric::RankPlace> places;
  for (std::size_t i = 0; i < all.tasks.size(); ++i) places.push_back(all.tasks.at(i)->place);
  if (auto line = fabric::judge_places(places, all.devices.places, host)) lines.push_back(std::move(*line));
  if (!verbose) return lines;
  for (const fabric::RankPlace& place : places) lines.push_back(fabric::describe_place(place, all.devices.places));
  return lines;
}

std::optional<step::MemoryGroup> memory_group_of(const TaskFacts* facts) {
  if (facts == nullptr || !facts->is_complete.load()) return std::nullopt;
  if (facts->group.front() == '\0') return std::nullopt;
  return step::MemoryGroup{facts->is_version_1, facts->group.data()};
}

}  // namespace amldist::spank
