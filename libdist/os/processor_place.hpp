// Where a processor is in its machine, as Linux describes it.
#pragma once

#include <string>

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

}  // namespace amldist
