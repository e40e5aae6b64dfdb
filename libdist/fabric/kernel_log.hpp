// The kernel's log since boot, as far as its buffer reaches.
#pragma once

#include <string>
#include <vector>

#include "core/result.hpp"

namespace amldist::fabric {

/// Lines of `path` (/dev/kmsg, or a text file in its place), at most 8 MiB, without waiting for new ones. Errors:
/// unavailable, with the reason (reading /dev/kmsg takes CAP_SYSLOG where dmesg_restrict is set).
[[nodiscard]] Result<std::vector<std::string>> read_kernel_log(const std::string& path);

}  // namespace amldist::fabric
