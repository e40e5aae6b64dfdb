#include "step/cause/memory_group.hpp"

#include <algorithm>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using text::concat;

/// Above this a limit of version 1 means that there is no limit.
constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(const std::string& file) {
  return text::to_number(text::trim(first_line_of(file)), ~std::uint64_t{0});
}

/// The number after `name` and a blank at the beginning of a line.
std::optional<std::uint64_t> value_in(const std::string& file, std::string_view name) {
  constexpr std::size_t most = 4096;
  const std::string content = read_file_start(file, most);
  for (const std::string_view line : text::split(content, '\n')) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ' ')
      return text::to_number(line.substr(name.size() + 1), ~std::uint64_t{0});
  }
  return std::nullopt;
}

/// "task" of ".../step_0/task_3"; "step" also of ".../step_0/user".
std::string_view owner_of(std::string_view path) {
  const std::string_view last = path.substr(path.rfind('/') + 1);
  for (const std::string_view word : {"task", "step", "job"})
    if (last.starts_with(concat({word, "_"}))) return word;
  return path.find("/step_") != std::string_view::npos ? "step" : "node's jobs";
}

bool is_group_path(std::string_view path) {
  const auto parts = text::split(path, '/');
  return path.starts_with('/') && path.size() <= longest_group && std::ranges::find(parts, "..") == parts.end();
}

}  // namespace

std::optional<MemoryGroup> MemoryGroup::make(bool is_version_1, std::string_view path) {
  return is_group_path(path) ? std::optional(MemoryGroup{is_version_1, std::string(path)}) : std::nullopt;
}

std::optional<MemoryGroup> MemoryGroup::parse(std::string_view proc_cgroup) {
  std::optional<MemoryGroup> unified;
  for (const std::string_view line : text::split(proc_cgroup, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view path = line.substr(second + 1);
    if (!is_group_path(path)) continue;
    const auto controllers = text::split(line.substr(first + 1, second - first - 1), ',');
    if (std::ranges::find(controllers, "memory") != controllers.end()) return MemoryGroup{true, std::string(path)};
    if (line.starts_with("0::")) unified = MemoryGroup{false, std::string(path)};
  }
  return unified;
}

std::optional<MemoryUse> read_memory_use(const MemoryGroup& group, const std::string& root) {
  const std::string base = group.is_version_1 ? root + "/memory" : root;
  const auto file = [&](std::string_view path, std::string_view v1, std::string_view v2) {
    return concat({base, path, "/", group.is_version_1 ? v1 : v2});
  };
  MemoryUse use;
  const auto kills = value_in(file(group.path, "memory.oom_control", "memory.events"), "oom_kill");
  if (!kills) return std::nullopt;
  use.kills = *kills;
  for (std::string path = group.path; !path.empty(); path.resize(path.rfind('/'))) {
    const auto limit = number_in(file(path, "memory.limit_in_bytes", "memory.max"));
    if (!limit || *limit >= no_limit) continue;
    // If task, step and job have the same limit, the step is named, because its tasks share the limit.
    const bool is_nearer = !use.limit || *limit < *use.limit || (*limit == *use.limit && use.whose == "task");
    if (!is_nearer) continue;
    use.limit = limit;
    use.peak = number_in(file(path, "memory.max_usage_in_bytes", "memory.peak"));
    use.whose = owner_of(path);
  }
  return use;
}

}  // namespace amldist::step
