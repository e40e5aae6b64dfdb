// The processes below this one.
#pragma once

#include <sys/types.h>

#include <vector>

namespace amldist {

/// Children of this process, their children and so on, parents first, as /proc shows them now. Without /proc: none.
[[nodiscard]] std::vector<pid_t> descendants();

}  // namespace amldist
