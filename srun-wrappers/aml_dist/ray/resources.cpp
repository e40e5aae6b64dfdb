#include "aml_dist/ray/resources.hpp"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/os/processor_place.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/visible_gpus.hpp"

namespace amldist::ray {
namespace {

using text::concat;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

std::uint32_t cpus_in_mask() {
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, allowed_processors().size()));
}

/// The least limit on the way up from a cgroup: "0::/system.slice/job_7/step_0" (v2), "4:memory:/slurm/job_7" (v1).
std::optional<std::uint64_t> cgroup_memory() {
  constexpr std::size_t most = 65536;
  const std::string text = read_file_start("/proc/self/cgroup", most);
  std::optional<std::uint64_t> least;
  for (const std::string_view line : text::split(text, '\n')) {
    const auto fields = text::split(line, ':');
    if (fields.size() < 3 || !(fields[1].empty() || fields[1] == "memory")) continue;
    const bool second = fields[1].empty();
    std::string path(line.substr(fields[0].size() + fields[1].size() + 2));
    for (;;) {
      const std::string file = concat({second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory", path,
                                       second ? "/memory.max" : "/memory.limit_in_bytes"});
      const auto limit = text::to_number(text::trim(first_line_of(file)), std::numeric_limits<std::int64_t>::max());
      if (limit && (!least || *limit < *least)) least = *limit;
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
  }
  return least;
}

std::uint64_t free_memory() {
  constexpr std::size_t most = 4096;
  constexpr std::string_view name = "MemAvailable:";
  const std::string text = read_file_start("/proc/meminfo", most);
  const auto at = text.find(name);
  if (at == std::string::npos) return 0;
  const auto line = text::trim(std::string_view(text).substr(at + name.size(), text.find('\n', at) - at - name.size()));
  return text::to_number(line.substr(0, line.find(' ')), std::numeric_limits<std::uint32_t>::max()).value_or(0) * 1024;
}

std::uint64_t free_shared_memory() {
  struct statvfs facts = {};
  if (::access("/dev/shm", W_OK) != 0 || ::statvfs("/dev/shm", &facts) != 0) return 0;
  return std::uint64_t{facts.f_bavail} * facts.f_frsize;
}

std::optional<std::uint64_t> number(const EnvironmentReader& environment, std::string_view name) {
  const auto value = text::to_number(environment(name).value_or(""), std::numeric_limits<std::uint32_t>::max());
  return value && *value > 0 ? value : std::nullopt;
}

/// What the step may use here: of Slurm's word, the cgroup's and the machine's the least.
std::uint64_t memory_limit(const MachineFacts& machine, const EnvironmentReader& environment, std::uint32_t cpus) {
  std::uint64_t limit = machine.memory;
  bool is_limited = false;
  const auto lower = [&](std::optional<std::uint64_t> other) {
    if (!other || *other >= machine.memory) return;
    limit = std::min(limit, *other);
    is_limited = true;
  };
  lower(machine.cgroup_memory);
  if (const auto node = number(environment, "SLURM_MEM_PER_NODE")) lower(*node * mebibyte);
  if (const auto each = number(environment, "SLURM_MEM_PER_CPU")) lower(*each * mebibyte * cpus);
  return is_limited ? limit : std::min(machine.free_memory, machine.memory);
}

/// As Ray: 30 % of the memory, at most 200 GB; and what /dev/shm holds.
void choose_store(const MachineFacts& machine, std::uint64_t limit, Resources& out, std::vector<std::string>& notes) {
  constexpr std::uint64_t most = 200'000'000'000;
  const std::uint64_t wanted = std::max(std::min(limit * 3 / 10, most), least_object_store);
  const std::uint64_t room = machine.free_shared_memory / 20 * 19;
  out.object_store = std::min(wanted, room);
  out.store_on_disk = out.object_store < least_object_store;
  if (out.store_on_disk) {
    out.object_store = wanted;
    notes.push_back(concat({"/dev/shm has ", in_words(machine.free_shared_memory), " free, Ray needs at least ",
                            in_words(least_object_store), ": objects are kept in files, which is slower"}));
  } else if (out.object_store < wanted) {
    notes.push_back(concat({"/dev/shm has ", in_words(machine.free_shared_memory), " free: the object store has ",
                            in_words(out.object_store), " instead of ", in_words(wanted)}));
  }
}

std::uint32_t choose_gpus(const MachineFacts& machine, const EnvironmentReader& environment,
                          std::vector<std::string>& notes) {
  const auto visible = launch::visible_gpus(environment);
  if (!visible && machine.has_nvidia_gpus) {
    notes.emplace_back("the node has GPUs but the step asked for none, so Ray has none: use srun --gpus-per-node=N");
  }
  return visible.value_or(0);
}

}  // namespace

MachineFacts read_machine() {
  struct sysinfo facts = {};
  const bool known = ::sysinfo(&facts) == 0;
  return {cpus_in_mask(), cgroup_memory(),      known ? std::uint64_t{facts.totalram} * facts.mem_unit : 0,
          free_memory(),  free_shared_memory(), ::access("/dev/nvidia0", F_OK) == 0};
}

Resources choose_resources(const MachineFacts& machine, const EnvironmentReader& environment,
                           std::vector<std::string>& notes) {
  Resources out;
  std::uint64_t cpus = machine.cpus_in_mask;
  for (const std::string_view name : {"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"}) {
    if (const auto count = number(environment, name)) cpus = std::min(cpus, *count);
  }
  out.cpus = static_cast<std::uint32_t>(cpus);
  out.gpus = choose_gpus(machine, environment, notes);
  const std::uint64_t limit = memory_limit(machine, environment, out.cpus);
  if (limit == 0) return out;
  choose_store(machine, limit, out, notes);
  out.memory = out.object_store < limit ? limit - out.object_store : limit / 2;
  return out;
}

std::string in_words(std::uint64_t bytes) {
  constexpr std::uint64_t gibibyte = mebibyte * 1024;
  if (bytes < gibibyte) return concat({std::to_string(bytes / mebibyte), " MiB"});
  const std::uint64_t tenths = bytes * 10 / gibibyte;
  return concat({std::to_string(tenths / 10), ".", std::to_string(tenths % 10), " GiB"});
}

}  // namespace amldist::ray
