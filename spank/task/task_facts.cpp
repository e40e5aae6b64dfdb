#include "spank/task/task_facts.hpp"

#include <algorithm>

#include "base/os/whole_file.hpp"

namespace amldist::spank {

void note_task(TaskFacts& facts) {
  constexpr std::size_t enough = 8192;
  const auto group = step::MemoryGroup::parse(read_file_start("/proc/self/cgroup", enough));
  if (!group) return;
  facts.is_version_1 = group->is_version_1;
  std::ranges::copy(group->path, facts.group.begin());
  facts.is_complete.store(true);
}

std::optional<step::MemoryGroup> memory_group_of(const TaskFacts* facts) {
  if (facts == nullptr || !facts->is_complete.load()) return std::nullopt;
  return step::MemoryGroup{facts->is_version_1, facts->group.data()};
}

}  // namespace amldist::spank
