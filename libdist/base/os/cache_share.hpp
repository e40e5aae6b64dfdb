// How much of a processor's last cache one rank can count on: what is larger is better written past it.
#pragma once

#include <cstddef>
#include <string>

namespace amldist {

/// Bytes for each of `ranks` that keep a machine's processors busy together; those of a processor where they are fewer.
/// From Linux's description of the first processor in `folder`, as sysconf(3) knows the cache of a whole package at
/// best, of which a virtual machine may have one of many parts: 384 MiB where there are 32. 16 MiB where nothing is
/// said.
[[nodiscard]] std::size_t cache_share(std::size_t ranks,
                                      const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace amldist
