// How much of a processor's last-level cache one rank can count on; larger data is better written past the cache.
#pragma once

#include <cstddef>
#include <string>

namespace amldist {

/// Bytes for each of `ranks` if they keep all processors of a machine busy; with fewer ranks, the share of one
/// processor. Read from Linux's description of the first processor in `folder`. sysconf(3) knows at best the cache of a
/// whole package, and a virtual machine may have one part of many: 384 MiB instead of 32. 16 MiB if the kernel
/// describes no cache.
[[nodiscard]] std::size_t cache_share(std::size_t ranks,
                                      const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace amldist
