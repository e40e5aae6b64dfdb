#include "spank/stepd/task_facts.hpp"

#include <algorithm>
#include <string_view>
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

}  // namespace

NodeDevices read_devices() {
  NodeDevices out{.numa = fabric::read_numa(), .gpus = fabric::read_numbered_gpus()};
  out.places = fabric::read_device_places(out.gpus);
  return out;
}

AllTaskFacts AllTaskFacts::make(std::uint32_t tasks) {
  return {.tasks = SharedArray<TaskFacts>::make(tasks), .complete = SharedAtomic<std::uint32_t>::make()};
}

bool note_task(const AllTaskFacts& all, std::uint32_t local, const launch::Identity& identity,
               const EnvironmentReader& environment) {
  TaskFacts* const facts = all.tasks.at(local);
  if (facts == nullptr) return false;
  note_group(*facts);
  if (!all.devices.numa.empty())
    facts->place = own_place(all.devices.numa, all.devices.gpus, identity.rank, identity.local_rank, environment);
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
  const auto end = std::ranges::find(facts->group, '\0');
  return step::MemoryGroup::make(facts->is_version_1, std::string_view(facts->group.begin(), end));
}

}  // namespace amldist::spank
