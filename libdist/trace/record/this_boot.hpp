// Whether a recorder was written on this very machine since it has started: then both have one monotonic clock.
#pragma once

#include <cstdint>

#include "base/os/whole_file.hpp"
#include "base/text/siphash.hpp"

namespace amldist::trace {

/// A number of this start of this machine's kernel.
[[nodiscard]] inline std::uint64_t this_boot() {
  static const std::uint64_t boot = siphash({}, first_line_of("/proc/sys/kernel/random/boot_id"));
  return boot;
}

}  // namespace amldist::trace
