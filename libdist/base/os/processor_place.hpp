// Where a processor is in its machine according to Linux, and which processors a process may use.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace amldist {

/// -1 if the kernel does not report it (a container without these folders, a virtual machine without cache
/// descriptions).
struct ProcessorPlace {
  int cache = -1;   ///< the first processor that shares its last-level cache, the same number for all that share it
  int memory = -1;  ///< NUMA node
  int socket = -1;  ///< physical package

  friend bool operator==(const ProcessorPlace&, const ProcessorPlace&) = default;
};

/// `folder`: /sys/devices/system/cpu, or a copy for tests.
[[nodiscard]] ProcessorPlace place_of_processor(int processor, const std::string& folder = "/sys/devices/system/cpu");

/// The processors that this thread may use, in ascending order; empty if the kernel does not report them.
[[nodiscard]] std::vector<int> allowed_processors();

/// The same, one of each core before the others.
[[nodiscard]] std::vector<int> own_processors(const std::string& folder = "/sys/devices/system/cpu");

/// Binds the first thread of a process (0: this thread) to one processor. If that fails, nothing changes.
void bind_to_processor(pid_t process, int processor) noexcept;

}  // namespace amldist
