// Reads the kernel log since boot, as far as it is still in the kernel's buffer.
#pragma once

#include <string>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::fabric {

/// Lines of `path` (/dev/kmsg or a text file), at most 8 MiB. Does not wait for new ones. Errors: unavailable, with the
/// reason (/dev/kmsg needs CAP_SYSLOG if dmesg_restrict is set).
[[nodiscard]] Result<std::vector<std::string>> read_kernel_log(const std::string& path);

}  // namespace amldist::fabric
