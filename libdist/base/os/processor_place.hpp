// Where a processor is in its machine, as Linux describes it; and which processors a process may use.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace amldist {

/// -1: the kernel does not say it (a container without these folders, a virtual machine without cache descriptions).
struct ProcessorPlace {
  int cache = -1;   ///< the first processor that shares its last-level cache: equal for all of them
  int memory = -1;  ///< NUMA node
  int socket = -1;  ///< physical package

  friend bool operator==(const ProcessorPlace&, const ProcessorPlace&) = default;
};

/// `folder`: what /sys/devices/system/cpu is on this machine.
[[nodiscard]] ProcessorPlace place_of_processor(int processor, const std::string& folder = "/sys/devices/system/cpu");

/// The processors that this thread may use, one of each core before the rest; empty: the kernel does not say it.
[[nodiscard]] std::vector<int> own_processors(const std::string& folder = "/sys/devices/system/cpu");

/// Gives the first thread of a process (0: this thread) one processor. What cannot be bound stays as it is.
void bind_to_processor(pid_t process, int processor) noexcept;

}  // namespace amldist
