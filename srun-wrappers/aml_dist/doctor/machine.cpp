#include "aml_dist/doctor/machine.hpp"

#include <ifaddrs.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/net/own_network.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/bind.hpp"
#include "launch/placement/task_map.hpp"
#include "shared/programs.hpp"

namespace amldist::doctor {
namespace {

namespace fs = std::filesystem;
using commands::find_program_in;
using text::concat;

std::vector<fs::path> folders_of(const std::string& list) {
  std::vector<fs::path> out;
  for (const std::string_view folder : text::split(list, ':')) {
    if (!folder.empty()) out.emplace_back(folder);
  }
  return out;
}

/// Names in a folder; empty if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    out.push_back(entry->path().filename().string());
  }
  return out;
}

/// Folders with packages under the prefix of a python3, and its version.
struct PackageFolders {
  std::vector<fs::path> folders;
  std::string version;
};

PackageFolders folders_of_python(const EnvironmentReader& environment) {
  PackageFolders out{folders_of(environment("PYTHONPATH").value_or("")), {}};
  const auto python = find_program_in(environment("PATH").value_or(""), "python3");
  if (!python) return out;
  const fs::path prefix = fs::path(*python).parent_path().parent_path();
  for (const fs::path& base :
       {prefix / "lib", prefix / "local/lib", fs::path(environment("HOME").value_or("")) / ".local/lib"}) {
    for (const std::string& name : names_in(base)) {
      if (!name.starts_with("python3.")) continue;
      for (const char* const inside : {"site-packages", "dist-packages"}) {
        std::error_code ignored;
        if (fs::is_directory(base / name / inside, ignored)) out.folders.push_back(base / name / inside);
      }
      if (base == prefix / "lib") out.version = name.substr(6);
    }
  }
  out.folders.push_back(prefix / "lib/python3/dist-packages");  // Debian's own packages
  return out;
}

/// The version in the name of "torch-2.15.0.dist-info" or "torch-1.13.0a0+gitunknown.egg-info"; empty if not installed.
std::string version_of(const std::vector<std::string>& names, std::string_view distribution) {
  for (const std::string& name : names) {
    if (!name.ends_with(".dist-info") && !name.ends_with(".egg-info")) continue;
    if (!name.starts_with(distribution) || name.size() <= distribution.size() || name[distribution.size()] != '-')
      continue;
    std::string version = name.substr(distribution.size() + 1);
    version.erase(version.size() - 10);  // both endings are ten characters long
    return version;
  }
  return {};
}

/// Whether the PyTorch of this folder finds back ends through a group of entry points, according to its own source.
bool torch_in_finds_backends(const fs::path& folder) {
  constexpr std::size_t most = 1U << 20;
  const std::string source = read_file_start(folder / "torch/distributed/distributed_c10d.py", most);
  return source.find("torch.distributed.backends") != std::string::npos;
}

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return names;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> holder(list, &::freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (std::ranges::find(names, at->ifa_name) == names.end()) names.emplace_back(at->ifa_name);
  }
  return names;
}

std::optional<std::uint64_t> locked_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max() : limit.rlim_cur;
}

/// /dev/nvidia0, /dev/nvidia1, ...; beside them there are /dev/nvidiactl and others.
std::uint32_t count_gpus() {
  const auto names = names_in("/dev");
  return static_cast<std::uint32_t>(std::ranges::count_if(names, [](const std::string& name) {
    return name.starts_with("nvidia") && text::to_number(std::string_view(name).substr(6), 4096).has_value();
  }));
}

/// Whether this task's processors, memory, GPU and port belong together: the plugin's own judgement, of one rank.
std::string misplaced(const EnvironmentReader& environment) {
  const auto rank = text::to_number(environment("RANK").value_or(""), most_tasks - 1);
  const auto local_rank = text::to_number(environment("LOCAL_RANK").value_or(""), most_tasks - 1);
  if (!rank || !local_rank) return {};
  const auto gpus = fabric::read_numbered_gpus();
  const fabric::RankPlace place = fabric::own_place(fabric::read_numa(), gpus, static_cast<std::uint32_t>(*rank),
                                                    static_cast<std::uint32_t>(*local_rank), environment);
  return fabric::judge_places(std::span(&place, 1), fabric::read_device_places(gpus), own_host_name()).value_or("");
}

}  // namespace

Machine look_at_python(const EnvironmentReader& environment) {
  Machine machine;
  const std::string path = environment("PATH").value_or("");
  if (path.empty()) return machine;
  machine.has_build_tools =
      (find_program_in(path, "c++") || find_program_in(path, "g++")) && find_program_in(path, "ninja");
  const PackageFolders python = folders_of_python(environment);
  if (python.folders.empty()) return machine;
  std::vector<std::string> names;
  for (const fs::path& folder : python.folders) std::ranges::move(names_in(folder), std::back_inserter(names));
  machine.python_version = python.version;
  machine.mpi4py = version_of(names, "mpi4py");
  machine.torch = version_of(names, "torch");
  machine.amldist = version_of(names, "amldist");
  machine.torch_finds_backends = std::ranges::any_of(python.folders, torch_in_finds_backends);
  machine.keras = version_of(names, "keras");
  machine.tf_keras = version_of(names, "tf_keras");
  return machine;
}

Machine look_at_machine(const EnvironmentReader& environment) {
  Machine machine = look_at_python(environment);
  const auto own_address = hosts_file_address(own_host_name());
  machine.own_name_is_loopback = own_address && own_address->is_loopback();
  machine.interfaces = interface_names();
  machine.locked_memory = locked_memory_limit();
  machine.has_rdma = !names_in("/sys/class/infiniband").empty();
  machine.gpus = count_gpus();
  machine.misplaced = misplaced(environment);
  return machine;
}

}  // namespace amldist::doctor
