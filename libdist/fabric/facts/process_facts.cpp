#include "fabric/facts/process_facts.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

/// Reads CapEff of /proc/self/status, so that libcap is not needed.
bool has_ipc_lock() {
  constexpr int cap_ipc_lock = 14;  // linux/capability.h
  const std::string status = read_file_start("/proc/self/status", std::size_t{64} << 10);
  for (const std::string_view line : text::split(status, '\n')) {
    constexpr std::string_view key = "CapEff:\t";
    if (line.starts_with(key)) return (from_hex(line.substr(key.size())).value_or(0) >> cap_ipc_lock & 1) != 0;
  }
  return false;
}

MemlockFacts read_memlock() {
  MemlockFacts facts;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return facts;
  facts.unlimited = limit.rlim_cur == RLIM_INFINITY;
  facts.soft = limit.rlim_cur;
  facts.hard = limit.rlim_max;
  facts.exempt = has_ipc_lock();
  return facts;
}

/// Opens without blocking (a FIFO at this path) and closes at once. Opening a device node has no side effect.
DeviceNodeFacts try_node(const std::string& device, std::string path, bool injected) {
  DeviceNodeFacts facts{device, std::move(path), 0, true};
  const FileDescriptor file(::open(facts.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    facts.error = errno;
    return facts;
  }
  struct stat status = {};
  facts.is_device = injected || (::fstat(file.get(), &status) == 0 && S_ISCHR(status.st_mode));
  return facts;
}

}  // namespace

ProcessFacts read_process(const NodeFacts& node) {
  ProcessFacts facts;
  facts.memlock = read_memlock();
  if (node.roots.sys_injected && !node.roots.dev_injected) {
    facts.not_device_nodes = "the devices come from --sysfs-root, so this machine's /dev does not apply";
    return facts;
  }
  std::size_t position = 0;
  for (const DeviceFacts& device : node.devices) {
    // If sysfs does not name the node, it is numbered as the kernel does, in the order of devices.
    const std::string name = device.uverbs.empty() ? concat({"uverbs", std::to_string(position)}) : device.uverbs;
    facts.nodes.push_back(
        try_node(device.name, concat({node.roots.dev, "/infiniband/", name}), node.roots.dev_injected));
    facts.nodes.back().is_named = node.has_verbs_class;
    ++position;
  }
  return facts;
}

}  // namespace amldist::fabric
